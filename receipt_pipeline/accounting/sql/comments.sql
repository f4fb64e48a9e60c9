-- What views, the tables of the account, and their columns mean. Tables of the ledger say it themselves,
-- and a column of a view without a comment here means what the column of that name means there.

COMMENT ON COLUMN items.total_minor IS 'total as read, in minor units';
COMMENT ON COLUMN items.total_currency IS 'ISO 4217 code of the total, empty where unknown';
COMMENT ON COLUMN items.total IS 'total as read, exact, in major units';

COMMENT ON TABLE report_info IS 'what this report shows: one row';
COMMENT ON COLUMN report_info.seq IS 'newest event in the report';
COMMENT ON COLUMN report_info.as_of IS 'time at which the ledger was read';
COMMENT ON COLUMN report_info.cutoff IS 'time at which the account is evaluated';
COMMENT ON COLUMN report_info.time_zone IS 'time zone of the days in the report';
COMMENT ON COLUMN report_info.state IS 'accounted, investigate, invalid or empty';
COMMENT ON COLUMN report_info.gate IS 'pass or fail';
COMMENT ON COLUMN report_info.document IS 'the account as one JSON document';
COMMENT ON COLUMN report_info.export_id IS 'full build from which this report was refreshed';
COMMENT ON COLUMN report_info.refresh_no IS 'number of refreshes since that full build';
COMMENT ON TABLE active_principals IS 'who can own an investigation';
COMMENT ON COLUMN active_principals.principal IS 'name of the principal';
COMMENT ON TABLE account_findings IS 'open findings of the account, and who owns them';
COMMENT ON COLUMN account_findings.finding IS 'kind of finding, as in the document';
COMMENT ON COLUMN account_findings.owned IS 'whether its owner is active and the deadline has not passed';
COMMENT ON COLUMN account_findings.answered IS 'whether a person has recorded a decision';

COMMENT ON VIEW job_links IS 'where each job is shown in full: its command, and its last run in the web UI';
COMMENT ON COLUMN job_links.run_path IS 'path of the last run in the web UI';
COMMENT ON COLUMN job_links.status_command IS 'command that shows the job in full';

COMMENT ON VIEW job_report IS 'one row per job: identity, pins, outcome, effects, times; and one per imported job';
COMMENT ON COLUMN job_report.origin IS 'here, or the legacy system that reported an imported job';
COMMENT ON COLUMN job_report.input_digests IS 'digests of the scans in order';
COMMENT ON COLUMN job_report.input_bytes IS 'size of all scans in bytes';
COMMENT ON COLUMN job_report.classified IS 'items classified';
COMMENT ON COLUMN job_report.unchanged IS 'items that kept an earlier decision';
COMMENT ON COLUMN job_report.rejected IS 'items refused by validation';
COMMENT ON COLUMN job_report.cancelled IS 'items canceled';
COMMENT ON COLUMN job_report.superseded IS 'items superseded';
COMMENT ON COLUMN job_report.expired IS 'items past their deadline before any work';
COMMENT ON COLUMN job_report.unresolved IS 'items without an outcome';
COMMENT ON COLUMN job_report.sent_to_review IS 'items with the decision review';
COMMENT ON COLUMN job_report.attempts IS 'number of attempts';
COMMENT ON COLUMN job_report.retried IS 'whether another attempt followed a failed or lost one';
COMMENT ON COLUMN job_report.model_invocations IS 'model invocations of all attempts';
COMMENT ON COLUMN job_report.output_check IS 'what is known of the result object';
COMMENT ON COLUMN job_report.output_checked_at IS 'time of that check';
COMMENT ON COLUMN job_report.notification_state IS 'state of the notification';
COMMENT ON COLUMN job_report.deliveries IS 'delivery attempts that arrived';
COMMENT ON COLUMN job_report.drops IS 'delivery attempts lost on the way';
COMMENT ON COLUMN job_report.refusals IS 'delivery attempts the channel refused';
COMMENT ON COLUMN job_report.delivered_late IS 'whether it arrived after its deadline';
COMMENT ON COLUMN job_report.review_tasks IS 'review tasks made';
COMMENT ON COLUMN job_report.open_review_tasks IS 'review tasks still open';
COMMENT ON COLUMN job_report.duplicate_events IS 'events that only repeated one';
COMMENT ON COLUMN job_report.conflicting_events IS 'events with another result';
COMMENT ON COLUMN job_report.late_events IS 'events that came after the job had moved on';
COMMENT ON COLUMN job_report.open_investigations IS 'open investigations';
COMMENT ON COLUMN job_report.quarantined IS 'whether divergent outputs are in quarantine';
COMMENT ON COLUMN job_report.queue_s IS 'seconds from submission to first claim, or to the end';
COMMENT ON COLUMN job_report.processing_s IS 'seconds from first claim to terminal record';
COMMENT ON COLUMN job_report.total_s IS 'seconds from submission to terminal record';
COMMENT ON COLUMN job_report.reconciled_s IS 'seconds from submission to the last required effect';
COMMENT ON COLUMN job_report.status_document IS 'status document, relative to the data directory';
COMMENT ON COLUMN job_report.status_command IS 'command that shows the job in full';
COMMENT ON COLUMN job_report.run_path IS 'last Dagster run, relative to the web address';
COMMENT ON COLUMN job_report.evidence_query IS 'query that lists the job''s events';

COMMENT ON VIEW rollout_comparison IS 'requests that two systems received: the outcome in each, and whether they agree';
COMMENT ON COLUMN rollout_comparison.idempotency_key IS 'key under which both received the request';
COMMENT ON COLUMN rollout_comparison.older_job_id IS 'record of the legacy system''s job, empty when it has none';
COMMENT ON COLUMN rollout_comparison.job_id IS 'job of this product, empty when it has none';
COMMENT ON COLUMN rollout_comparison.older_class IS 'class as the legacy system reported it';
COMMENT ON COLUMN rollout_comparison.terminal_class IS 'class here';
COMMENT ON COLUMN rollout_comparison.older_decision IS 'decision there, where it was reported';
COMMENT ON COLUMN rollout_comparison.decision IS 'decision here: clear, or review when any item has it';
COMMENT ON COLUMN rollout_comparison.verdict IS 'agree, differ, open, missing here or missing there';

COMMENT ON VIEW unresolved_investigations IS 'open investigations, nearest deadline first';
COMMENT ON COLUMN unresolved_investigations.overdue IS 'whether the deadline had passed when the ledger was read';
COMMENT ON COLUMN unresolved_investigations.owned IS 'whether its owner is active and the deadline has not passed';
COMMENT ON COLUMN unresolved_investigations.job_state IS 'state of the job';
COMMENT ON COLUMN unresolved_investigations.job_phase IS 'phase of the job';
COMMENT ON COLUMN unresolved_investigations.status_command IS 'command that shows the job in full';
COMMENT ON COLUMN unresolved_investigations.run_path IS 'path of the last run in the web UI';
COMMENT ON COLUMN unresolved_investigations.evidence_query IS 'query that lists the evidence';

COMMENT ON VIEW time_to_reconciled_truth IS 'seconds from submission to the last required effect, by terminal class';
COMMENT ON COLUMN time_to_reconciled_truth.terminal_class IS 'terminal class, open for jobs that have none';
COMMENT ON COLUMN time_to_reconciled_truth.jobs IS 'number of jobs';
COMMENT ON COLUMN time_to_reconciled_truth.settled_jobs IS 'jobs whose required effects are committed';
COMMENT ON COLUMN time_to_reconciled_truth.p50_s IS 'median, nearest rank';
COMMENT ON COLUMN time_to_reconciled_truth.p95_s IS '95th percentile, nearest rank';
COMMENT ON COLUMN time_to_reconciled_truth.max_s IS 'longest';
COMMENT ON COLUMN time_to_reconciled_truth.needing_people_percent
    IS 'share of jobs with an item in review or an open investigation';

COMMENT ON VIEW jobs_per_day
    IS 'accepted jobs per day in the time zone of report_info; jobs_per_day_in(zone) for another zone';
COMMENT ON COLUMN jobs_per_day.day IS 'calendar day of acceptance';
COMMENT ON COLUMN jobs_per_day.time_zone IS 'time zone of the days';
COMMENT ON COLUMN jobs_per_day.jobs IS 'number of jobs';
COMMENT ON MACRO TABLE jobs_per_day_in IS 'accepted jobs per day in the time zone that you name';

COMMENT ON VIEW totals_by_currency IS 'sum of the totals read, per currency';
COMMENT ON COLUMN totals_by_currency.currency IS 'ISO 4217 code, or unknown';
COMMENT ON COLUMN totals_by_currency.items IS 'items with a total';
COMMENT ON COLUMN totals_by_currency.total_minor IS 'sum in minor units';
COMMENT ON COLUMN totals_by_currency.total IS 'exact sum in major units';

COMMENT ON VIEW costs IS 'what each job cost: input, queueing, compute, retries, result, notifications, evidence';
COMMENT ON COLUMN costs.input_bytes IS 'bytes of its scans, held until the job is closed';
COMMENT ON COLUMN costs.queued_item_s IS 'items times the seconds that they waited for the first claim';
COMMENT ON COLUMN costs.compute_s IS 'seconds of all attempts, by the workers'' clocks';
COMMENT ON COLUMN costs.warm_up_and_handling_s IS 'seconds of attempts in which no item was processed';
COMMENT ON COLUMN costs.retry_compute_s IS 'seconds of attempts that failed or were lost';
COMMENT ON COLUMN costs.repeated_invocations IS 'model invocations beyond the first of each item';
COMMENT ON COLUMN costs.result_bytes IS 'bytes of the result object';
COMMENT ON COLUMN costs.notification_sends IS 'delivery attempts of notifications, whatever their outcome';
COMMENT ON COLUMN costs.repeated_notifications IS 'notifications received late, twice or in conflict';
COMMENT ON COLUMN costs.evidence_rows_per_item IS 'events written per accepted item';
COMMENT ON COLUMN costs.evidence_bytes_per_item IS 'bytes of events written per accepted item';
