-- The account of one moment; its rows are replaced with every publication.

CREATE TABLE report_info (
    seq BIGINT, as_of TIMESTAMPTZ, cutoff TIMESTAMPTZ, time_zone VARCHAR, state VARCHAR, gate VARCHAR, document JSON,
    export_id VARCHAR, refresh_no BIGINT
);

CREATE TABLE active_principals (principal VARCHAR);

CREATE TABLE account_findings (
    finding VARCHAR, job_id VARCHAR, investigation_id VARCHAR, owner VARCHAR, deadline_at TIMESTAMPTZ,
    owned BOOLEAN, answered BOOLEAN
);
