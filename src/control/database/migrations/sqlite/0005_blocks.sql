-- Overrides that block or are unlimited, of a consumer, a tenant or any other value, and limits of 0. SQLite changes no CHECK,
-- so the table is made anew.
CREATE TABLE overrides_of_all_kinds (
    id TEXT PRIMARY KEY,
    user_id TEXT CHECK (length(user_id) BETWEEN 1 AND 256),
    tenant_id TEXT CHECK (length(tenant_id) BETWEEN 1 AND 256),
    policy TEXT CHECK (length(policy) BETWEEN 1 AND 256),
    subject TEXT CHECK (length(subject) BETWEEN 1 AND 1024),
    override_type TEXT NOT NULL CHECK (override_type IN ('absolute', 'multiplicative', 'block', 'unlimited')),
    value REAL NOT NULL CHECK (value >= 0),
    reason TEXT NOT NULL CHECK (length(reason) BETWEEN 1 AND 4096),
    expires_at INTEGER,
    created_at INTEGER NOT NULL,
    created_by TEXT NOT NULL,
    version INTEGER NOT NULL,
    CHECK (user_id IS NOT NULL OR tenant_id IS NOT NULL OR subject IS NOT NULL)
) STRICT;
INSERT INTO overrides_of_all_kinds
SELECT id, user_id, tenant_id, policy, NULL, override_type, value, reason, expires_at, created_at, created_by, version
FROM rate_limit_overrides;
DROP TABLE rate_limit_overrides;
ALTER TABLE overrides_of_all_kinds RENAME TO rate_limit_overrides;
CREATE INDEX rate_limit_overrides_version ON rate_limit_overrides (version);
CREATE INDEX rate_limit_overrides_user ON rate_limit_overrides (user_id, expires_at);
CREATE INDEX rate_limit_overrides_tenant ON rate_limit_overrides (tenant_id, expires_at);
CREATE INDEX rate_limit_overrides_expires ON rate_limit_overrides (expires_at);
