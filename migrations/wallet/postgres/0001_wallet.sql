-- The wallet ledger of one region, PostgreSQL. The same tables as in ../sqlite, column for column.
--
-- Keys (`…_key`) are ids in the injective encoding of `contracts::key`: printable, free of NUL and at
-- most 192 bytes, as an index entry has a size limit and ids do not. They compare byte for byte
-- (COLLATE "C"), whatever the collation of the database.
-- The full id stands beside its key for people (backslash and NUL escaped as \\ and \0).
-- Times are RFC 3339 text in UTC with six decimals: they sort as text and read without a function.
-- Booleans, dates and decimals are avoided so that one set of statements serves both databases.

CREATE TABLE wallets (
    customer_key TEXT COLLATE "C" NOT NULL,
    customer_id TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    -- When set, the wallet refuses every other currency.
    sole_currency TEXT COLLATE "C",
    opened_at TEXT COLLATE "C" NOT NULL,
    closed_at TEXT COLLATE "C",
    CONSTRAINT wallets_pk PRIMARY KEY (customer_key),
    CONSTRAINT wallets_state_known CHECK (state IN ('open', 'closed'))
);

CREATE TABLE accounts (
    account_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    owner_kind TEXT COLLATE "C" NOT NULL,
    -- `customer_key`, or the name of a system account such as `provider-clearing`.
    owner_key TEXT COLLATE "C" NOT NULL,
    currency TEXT COLLATE "C" NOT NULL,
    exponent BIGINT NOT NULL,
    -- Derived from the entries and checked against them by `ledger verify`. NULL for system
    -- accounts: every movement touches one, and a stored balance would serialise all customers.
    balance_minor BIGINT,
    CONSTRAINT accounts_owner_currency_unique UNIQUE (owner_kind, owner_key, currency, exponent),
    CONSTRAINT accounts_owner_kind_known CHECK (owner_kind IN ('customer', 'system')),
    CONSTRAINT accounts_exponent_range CHECK (exponent BETWEEN 0 AND 18),
    CONSTRAINT accounts_balance_where_customer CHECK ((owner_kind = 'customer') = (balance_minor IS NOT NULL)),
    CONSTRAINT accounts_balance_not_negative CHECK (balance_minor IS NULL OR balance_minor >= 0)
);

-- A customer holds a currency with one exponent only; two would be a hundredfold apart.
CREATE UNIQUE INDEX accounts_one_exponent_per_customer ON accounts (owner_key, currency) WHERE owner_kind = 'customer';

-- One row per operation id that was ever answered for good, and one per tombstone. Never deleted:
-- a command may arrive years late. The primary key decides every race.
CREATE TABLE operations (
    operation_key TEXT COLLATE "C" NOT NULL,
    operation_id TEXT COLLATE "C" NOT NULL,
    saga_id TEXT COLLATE "C",
    kind TEXT COLLATE "C" NOT NULL,
    -- `claimed` lives only inside the transaction that executes the operation.
    state TEXT COLLATE "C" NOT NULL,
    -- Which way an update moves money; lets `ledger.stats` count without reading JSON.
    movement TEXT COLLATE "C",
    -- What makes a repeat the same command; both NULL when only a revert of it has been seen.
    params_digest TEXT COLLATE "C",
    params TEXT COLLATE "C",
    memo TEXT COLLATE "C",
    fence BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    -- The answer as sent, repeated word for word. NULL only while claimed.
    reply TEXT COLLATE "C",
    -- The one revert that has offset this update.
    reverted_by TEXT COLLATE "C",
    created_at TEXT COLLATE "C" NOT NULL,
    updated_at TEXT COLLATE "C" NOT NULL,
    CONSTRAINT operations_pk PRIMARY KEY (operation_key),
    CONSTRAINT operations_kind_known CHECK (kind IN ('update', 'revert')),
    CONSTRAINT operations_state_known CHECK (state IN ('claimed', 'applied', 'rejected', 'tombstoned', 'reverted')),
    CONSTRAINT operations_movement_known CHECK (movement IN ('credit', 'debit')),
    CONSTRAINT operations_answered CHECK ((state = 'claimed') = (reply IS NULL)),
    CONSTRAINT operations_offset_once CHECK ((state = 'reverted') = (reverted_by IS NOT NULL)),
    CONSTRAINT operations_params_whole CHECK ((params IS NULL) = (params_digest IS NULL))
);

-- Double entry: the entries of one operation sum to zero per currency. Append only.
CREATE TABLE entries (
    -- The order of booking within an account; times may repeat, this does not.
    entry_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    operation_key TEXT COLLATE "C" NOT NULL,
    -- No foreign key: its check would write a lock into the one row of the system account on every
    -- movement (PostgreSQL). `ledger verify` looks for strays instead.
    account_id BIGINT NOT NULL,
    -- Above zero into the account, below zero out of it.
    amount_minor BIGINT NOT NULL,
    -- The operation whose entry this one offsets; unique, so that nothing is offset twice.
    reverses_key TEXT COLLATE "C",
    booked_at TEXT COLLATE "C" NOT NULL,
    CONSTRAINT entries_operation_fk FOREIGN KEY (operation_key) REFERENCES operations (operation_key),
    CONSTRAINT entries_once_per_operation UNIQUE (operation_key, account_id),
    CONSTRAINT entries_amount_not_zero CHECK (amount_minor <> 0)
);

CREATE UNIQUE INDEX entries_reversed_once ON entries (reverses_key, account_id) WHERE reverses_key IS NOT NULL;
CREATE INDEX entries_account ON entries (account_id, entry_id);

-- The highest fence seen per saga. A row outlives its saga: a straggler may come after the end.
CREATE TABLE saga_fences (
    saga_key TEXT COLLATE "C" NOT NULL,
    saga_id TEXT COLLATE "C" NOT NULL,
    fence BIGINT NOT NULL,
    CONSTRAINT saga_fences_pk PRIMARY KEY (saga_key),
    CONSTRAINT saga_fences_not_negative CHECK (fence >= 0)
);
