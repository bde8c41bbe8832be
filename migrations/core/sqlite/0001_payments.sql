-- Payments of the core. SQLite compares text byte for byte (collation BINARY) unless told otherwise.
-- Times are RFC 3339 text in UTC, sums are integer minor units beside their currency and its decimals.

-- One row for each payment identity: provider, account, external_id and capture_id ('' = none).
-- payment_id is derived from these four (a digest of their injective joining), so the primary key is
-- what makes the identity unique; four ids of 1 KiB would not fit into one index row everywhere.
CREATE TABLE payments (
    payment_id         TEXT    NOT NULL CONSTRAINT payments_pk PRIMARY KEY,
    provider           TEXT    NOT NULL,
    account            TEXT    NOT NULL,
    external_id        TEXT    NOT NULL CONSTRAINT payments_external_id_filled CHECK (external_id <> ''),
    capture_id         TEXT    NOT NULL,
    merchant_reference TEXT,
    status             TEXT    NOT NULL
        CONSTRAINT payments_status_known CHECK (status IN ('pending', 'successful', 'failed', 'cancelled', 'review')),
    saga_id            TEXT, -- the saga that owns the row; NULL: made beforehand, nobody works on it
    customer           TEXT,
    region             TEXT, -- pinned when the saga takes the row
    expected_minor     BIGINT,
    expected_currency  TEXT,
    expected_exponent  BIGINT,
    paid_minor         BIGINT CONSTRAINT payments_paid_positive CHECK (paid_minor > 0),
    paid_currency      TEXT,
    paid_exponent      BIGINT,
    wallet_currency    TEXT,
    wallet_exponent    BIGINT,
    quote              TEXT, -- JSON: rate, source, time and rounding of the conversion
    credited_minor     BIGINT CONSTRAINT payments_credited_positive CHECK (credited_minor > 0),
    credited_currency  TEXT,
    credited_exponent  BIGINT,
    reason             TEXT,
    created_at         TEXT    NOT NULL,
    updated_at         TEXT    NOT NULL,
    -- What counts as money credited is exactly what is successful.
    CONSTRAINT payments_credited_iff_successful CHECK ((status = 'successful') = (credited_minor IS NOT NULL))
);
CREATE INDEX payments_by_external_id ON payments (external_id);
CREATE INDEX payments_by_status ON payments (status);

-- Whether a payment is credited as a whole or capture by capture; the first paid fact decides.
CREATE TABLE payment_modes (
    whole_payment_id TEXT NOT NULL CONSTRAINT payment_modes_pk PRIMARY KEY,
    mode             TEXT NOT NULL
        CONSTRAINT payment_modes_mode_known CHECK (mode IN ('whole', 'by_capture'))
);

-- Payments announced under our own reference, before the provider has given them an id.
CREATE TABLE expected_payments (
    expected_id        TEXT NOT NULL CONSTRAINT expected_payments_pk PRIMARY KEY, -- from the next three
    provider           TEXT NOT NULL,
    account            TEXT NOT NULL,
    merchant_reference TEXT NOT NULL,
    expected           TEXT NOT NULL, -- JSON
    created_at         TEXT NOT NULL
);

-- Written first in the transaction of each change, so that an operation happens once and gives the
-- same answer for good. Rows are never deleted. The key is the operation id as a bounded token.
CREATE TABLE payment_operations (
    operation_key TEXT NOT NULL CONSTRAINT payment_operations_pk PRIMARY KEY,
    operation_id  TEXT NOT NULL,
    digest        TEXT NOT NULL, -- of the parameters: the same id with others is a conflict
    result        TEXT NOT NULL, -- JSON; '' only inside the transaction that writes it
    created_at    TEXT NOT NULL
);

-- Where each customer's wallet is; the KV bucket `regions` is a cache of it.
CREATE TABLE customer_regions (
    customer   TEXT NOT NULL CONSTRAINT customer_regions_pk PRIMARY KEY,
    region     TEXT NOT NULL,
    updated_at TEXT NOT NULL
);
