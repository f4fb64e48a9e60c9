-- Views over the tables of the report. Durations are seconds; days are days of the time zone in report_info.

-- Where each job is shown in full; narrow, so that a figure of a million jobs opens fast.
CREATE VIEW job_links AS
SELECT j.job_id, j.state, j.terminal_class,
       CASE WHEN w.run_id <> '' THEN '/runs/' || w.run_id END AS run_path,
       'receipts status ' || j.job_id AS status_command
FROM jobs j
LEFT JOIN (SELECT job_id, arg_max(run_id, lease_epoch) AS run_id FROM attempts GROUP BY job_id) w
    ON w.job_id = j.job_id;

CREATE VIEW job_report AS
WITH scope AS (
    SELECT job_id,
           list(sha256 ORDER BY ordinal) AS input_digests,
           sum(size_bytes)::BIGINT AS input_bytes,
           count(*) FILTER (item_class = 'classified') AS classified,
           count(*) FILTER (item_class = 'unchanged') AS unchanged,
           count(*) FILTER (item_class = 'rejected') AS rejected,
           count(*) FILTER (item_class = 'cancelled') AS cancelled,
           count(*) FILTER (item_class = 'superseded') AS superseded,
           count(*) FILTER (item_class = 'expired') AS expired,
           count(*) FILTER (item_class = 'unresolved') AS unresolved,
           count(*) FILTER (decision = 'review') AS sent_to_review
    FROM items GROUP BY job_id
), work AS (
    SELECT job_id,
           count(*) AS attempts,
           coalesce(sum(invocations), 0)::BIGINT AS model_invocations,
           min(lease_epoch) FILTER (outcome IN ('failed', 'lost')) AS first_failed_epoch,
           max(lease_epoch) AS last_epoch,
           arg_max(run_id, lease_epoch) AS last_run_id
    FROM attempts GROUP BY job_id
), sent AS (
    SELECT job_id,
           count(*) FILTER (outcome = 'delivered') AS delivered,
           count(*) FILTER (outcome = 'dropped') AS dropped,
           count(*) FILTER (outcome = 'failed') AS refused,
           coalesce(bool_or(late), FALSE) AS late
    FROM deliveries GROUP BY job_id
), received AS (
    SELECT job_id,
           count(*) FILTER (outcome = 'duplicate') AS duplicates,
           count(*) FILTER (outcome = 'conflict') AS conflicts,
           count(*) FILTER (outcome = 'late') AS late_events
    FROM consumed GROUP BY job_id
), tasks AS (
    SELECT job_id, count(*) AS review_tasks, count(*) FILTER (state = 'open') AS open_review_tasks
    FROM review_tasks GROUP BY job_id
), investigated AS (
    SELECT job_id, count(*) AS open_investigations FROM investigations WHERE state = 'open' GROUP BY job_id
), quarantined_jobs AS (
    SELECT DISTINCT job_id FROM quarantine WHERE state = 'open'
)
SELECT j.job_id, 'here' AS origin, j.tenant, j.caller, j.idempotency_key, j.fingerprint,
       j.release_id, j.image_digest, j.chain_revision, j.feature_contract, j.risk_model_digest, j.policy_revision,
       scope.input_digests, scope.input_bytes,
       j.state, j.terminal_class, j.reason_code, j.phase,
       j.items_requested, scope.classified, scope.unchanged, scope.rejected, scope.cancelled, scope.superseded,
       scope.expired, scope.unresolved, scope.sent_to_review,
       coalesce(work.attempts, 0) AS attempts,
       j.attempts_spent,
       coalesce(work.first_failed_epoch < work.last_epoch, FALSE) AS retried,
       coalesce(work.model_invocations, 0) AS model_invocations,
       j.result_digest, j.result_size_bytes,
       CASE WHEN j.state <> 'succeeded' THEN 'none expected'
            WHEN j.result_purged_at IS NOT NULL THEN 'purged'
            WHEN quarantined_jobs.job_id IS NOT NULL THEN 'quarantined'
            ELSE coalesce(o.outcome, 'read back at commit') END AS output_check,
       o.checked_at AS output_checked_at,
       CASE WHEN j.notification = 'none' THEN 'none wanted'
            WHEN n.state IS NULL THEN 'not yet'
            ELSE n.state END AS notification_state,
       coalesce(sent.delivered, 0) AS deliveries,
       coalesce(sent.dropped, 0) AS drops,
       coalesce(sent.refused, 0) AS refusals,
       coalesce(sent.late, FALSE) AS delivered_late,
       coalesce(tasks.review_tasks, 0) AS review_tasks,
       coalesce(tasks.open_review_tasks, 0) AS open_review_tasks,
       coalesce(received.duplicates, 0) AS duplicate_events,
       coalesce(received.conflicts, 0) AS conflicting_events,
       coalesce(received.late_events, 0) AS late_events,
       coalesce(investigated.open_investigations, 0) AS open_investigations,
       quarantined_jobs.job_id IS NOT NULL AS quarantined,
       j.submitted_at, j.claimed_at, j.terminal_at, j.settled_at, j.queue_deadline, j.processing_deadline, j.cutoff_at,
       epoch_us(coalesce(j.claimed_at, j.terminal_at) - j.submitted_at) / 1e6 AS queue_s,
       epoch_us(j.terminal_at - j.claimed_at) / 1e6 AS processing_s,
       epoch_us(j.terminal_at - j.submitted_at) / 1e6 AS total_s,
       epoch_us(j.settled_at - j.submitted_at) / 1e6 AS reconciled_s,
       j.parent_job_id, j.superseded_by,
       'outbox/' || j.tenant || '/' || j.job_id || '.status.json' AS status_document,
       CASE WHEN work.last_run_id <> '' THEN '/runs/' || work.last_run_id END AS run_path,
       'receipts status ' || j.job_id AS status_command,
       'SELECT * FROM events WHERE job_id = ''' || j.job_id || ''' ORDER BY seq' AS evidence_query
FROM jobs j
LEFT JOIN scope ON scope.job_id = j.job_id
LEFT JOIN work ON work.job_id = j.job_id
LEFT JOIN sent ON sent.job_id = j.job_id
LEFT JOIN received ON received.job_id = j.job_id
LEFT JOIN tasks ON tasks.job_id = j.job_id
LEFT JOIN investigated ON investigated.job_id = j.job_id
LEFT JOIN quarantined_jobs ON quarantined_jobs.job_id = j.job_id
LEFT JOIN output_checks o ON o.object_key = j.result_key
LEFT JOIN effects n ON n.job_id = j.job_id AND n.kind = 'notification'
UNION ALL BY NAME
-- Jobs of a legacy system as it reported them, distinguished by origin and state. Nothing of it was verified here.
SELECT m.job_id, m.origin, m.tenant, m.caller, m.idempotency_key,
       'imported' AS state, m.terminal_class, m.reason_code, m.items_requested,
       0 AS attempts, FALSE AS retried, 0 AS model_invocations,
       'not verified here' AS output_check, 'sent by ' || m.origin AS notification_state,
       0 AS deliveries, 0 AS drops, 0 AS refusals, FALSE AS delivered_late,
       0 AS review_tasks, 0 AS open_review_tasks, 0 AS duplicate_events, 0 AS conflicting_events, 0 AS late_events,
       coalesce(investigated.open_investigations, 0) AS open_investigations, FALSE AS quarantined,
       m.submitted_at, m.ended_at AS terminal_at,
       epoch_us(m.ended_at - m.submitted_at) / 1e6 AS total_s,
       'receipts status ' || m.job_id AS status_command,
       'SELECT * FROM events WHERE job_id = ''' || m.job_id || ''' ORDER BY seq' AS evidence_query
FROM imported_jobs m
LEFT JOIN investigated ON investigated.job_id = m.job_id;

CREATE VIEW rollout_comparison AS
WITH there AS (
    SELECT * FROM imported_jobs WHERE idempotency_key IS NOT NULL
), span AS (
    SELECT tenant, origin, min(submitted_at) AS first_at, max(submitted_at) AS last_at FROM there GROUP BY ALL
), here AS (
    SELECT job_id, tenant, idempotency_key, submitted_at, terminal_class,
           CASE WHEN sent_to_review > 0 THEN 'review' WHEN classified + unchanged > 0 THEN 'clear' END AS decision
    FROM job_report WHERE origin = 'here'
), paired AS (
    SELECT t.tenant, t.origin, t.idempotency_key, t.job_id AS older_job_id, h.job_id,
           t.terminal_class AS older_class, h.terminal_class, t.decision AS older_decision, h.decision
    FROM there t LEFT JOIN here h ON h.tenant = t.tenant AND h.idempotency_key = t.idempotency_key
    UNION ALL BY NAME
    SELECT s.tenant, s.origin, h.idempotency_key, h.job_id, h.terminal_class, h.decision
    FROM here h JOIN span s ON s.tenant = h.tenant AND h.submitted_at BETWEEN s.first_at AND s.last_at
    WHERE NOT EXISTS (
        SELECT 1 FROM there t
        WHERE t.tenant = h.tenant AND t.origin = s.origin AND t.idempotency_key = h.idempotency_key
    )
)
SELECT tenant, origin, idempotency_key, older_job_id, job_id, older_class, terminal_class, older_decision, decision,
       CASE WHEN job_id IS NULL THEN 'missing here'
            WHEN older_job_id IS NULL THEN 'missing there'
            WHEN older_class IS NULL OR terminal_class IS NULL THEN 'open'
            WHEN older_class <> terminal_class OR older_decision <> decision THEN 'differ'
            ELSE 'agree' END AS verdict
FROM paired
ORDER BY tenant, origin, idempotency_key;

CREATE VIEW unresolved_investigations AS
SELECT i.investigation_id, i.job_id, i.kind, i.owner, i.escalation, i.opened_at, i.deadline_at,
       i.deadline_at < r.as_of AS overdue,
       i.deadline_at >= r.as_of AND i.owner IN (SELECT principal FROM active_principals) AS owned,
       i.reason_code, i.suspected_effect, i.last_safe_checkpoint, i.allowed_repair,
       j.state AS job_state, j.phase AS job_phase, j.terminal_class,
       'receipts status ' || i.job_id AS status_command, l.run_path,
       'SELECT * FROM events WHERE job_id = ''' || i.job_id || ''' ORDER BY seq' AS evidence_query
FROM investigations i
CROSS JOIN report_info r
LEFT JOIN jobs j ON j.job_id = i.job_id
LEFT JOIN job_links l ON l.job_id = i.job_id
WHERE i.state = 'open'
ORDER BY i.deadline_at, i.investigation_id;

CREATE VIEW time_to_reconciled_truth AS
SELECT coalesce(terminal_class, 'open') AS terminal_class,
       count(*) AS jobs,
       count(settled_at) AS settled_jobs,
       quantile_disc(reconciled_s, 0.5) AS p50_s,
       quantile_disc(reconciled_s, 0.95) AS p95_s,
       max(reconciled_s) AS max_s,
       round(100.0 * count(*) FILTER (sent_to_review > 0 OR open_investigations > 0) / count(*), 1)::DOUBLE
           AS needing_people_percent
FROM job_report
WHERE origin = 'here'
GROUP BY ALL
ORDER BY terminal_class;

CREATE VIEW jobs_per_day AS
SELECT (j.submitted_at AT TIME ZONE r.time_zone)::DATE AS day, r.time_zone, count(*) AS jobs
FROM jobs j CROSS JOIN report_info r
GROUP BY ALL
ORDER BY day;

CREATE MACRO jobs_per_day_in(zone) AS TABLE
SELECT (submitted_at AT TIME ZONE zone)::DATE AS day, zone AS time_zone, count(*) AS jobs
FROM jobs
GROUP BY ALL
ORDER BY day;

CREATE VIEW totals_by_currency AS
SELECT coalesce(total_currency, 'unknown') AS currency,
       count(*) AS items,
       sum(total_minor)::HUGEINT AS total_minor,
       sum(total)::DECIMAL(38, 3) AS total
FROM items
WHERE total IS NOT NULL
GROUP BY ALL
ORDER BY currency;

CREATE VIEW costs AS
WITH worked AS (
    SELECT job_id,
           sum(coalesce((facts ->> '$.seconds')::DOUBLE, 0)) AS attempt_s,
           sum(coalesce((facts ->> '$.seconds')::DOUBLE, 0)) FILTER (outcome IN ('failed', 'lost')) AS retry_s,
           sum(list_sum(map_values(coalesce(facts -> '$.item_seconds', '{}')::MAP(VARCHAR, DOUBLE)))) AS item_s
    FROM attempts GROUP BY job_id
), written AS (
    SELECT job_id, count(*) AS event_rows, sum(strlen(data::VARCHAR))::BIGINT AS event_bytes
    FROM events WHERE job_id IS NOT NULL GROUP BY job_id
), read_again AS (
    SELECT job_id, sum(greatest(invocations - 1, 0))::BIGINT AS repeated_invocations
    FROM items GROUP BY job_id
)
SELECT r.job_id, r.tenant, r.caller, r.submitted_at, r.terminal_class, r.items_requested,
       r.input_bytes,
       r.items_requested * coalesce(r.queue_s, 0) AS queued_item_s,
       coalesce(w.attempt_s, 0) AS compute_s,
       greatest(coalesce(w.attempt_s, 0) - coalesce(w.item_s, 0), 0) AS warm_up_and_handling_s,
       coalesce(w.retry_s, 0) AS retry_compute_s,
       coalesce(a.repeated_invocations, 0) AS repeated_invocations,
       coalesce(r.result_size_bytes, 0) AS result_bytes,
       r.deliveries + r.drops + r.refusals AS notification_sends,
       r.duplicate_events + r.late_events + r.conflicting_events AS repeated_notifications,
       coalesce(e.event_rows, 0) / r.items_requested AS evidence_rows_per_item,
       coalesce(e.event_bytes, 0) / r.items_requested AS evidence_bytes_per_item
FROM job_report r
LEFT JOIN worked w ON w.job_id = r.job_id
LEFT JOIN written e ON e.job_id = r.job_id
LEFT JOIN read_again a ON a.job_id = r.job_id
WHERE r.origin = 'here';
