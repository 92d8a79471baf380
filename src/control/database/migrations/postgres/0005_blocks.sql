-- Overrides that block or are unlimited, of a consumer, a tenant or any other value, and limits of 0.
ALTER TABLE rate_limit_overrides
    ADD COLUMN subject text CHECK (length(subject) BETWEEN 1 AND 1024),
    DROP CONSTRAINT rate_limit_overrides_check,
    DROP CONSTRAINT rate_limit_overrides_override_type_check,
    DROP CONSTRAINT rate_limit_overrides_value_check,
    ADD CHECK (user_id IS NOT NULL OR tenant_id IS NOT NULL OR subject IS NOT NULL),
    ADD CHECK (override_type IN ('absolute', 'multiplicative', 'block', 'unlimited')),
    ADD CHECK (value >= 0);
