-- The wallet ledger of one region, SQLite. The same tables as in ../postgres, column for column.
--
-- Keys (`…_key`) are ids in the injective encoding of `contracts::key`: printable, free of NUL and at
-- most 192 bytes, as an index entry has a size limit and ids do not. They compare byte for byte.
-- The full id stands beside its key for people (backslash and NUL escaped as \\ and \0).
-- Times are RFC 3339 text in UTC with six decimals: they sort as text and read without a function.
-- Booleans, dates and decimals are avoided so that one set of statements serves both databases.

CREATE TABLE wallets (
    customer_key TEXT NOT NULL,
    customer_id TEXT NOT NULL,
    state TEXT NOT NULL,
    -- When set, the wallet refuses every other currency.
    sole_currency TEXT,
    opened_at TEXT NOT NULL,
    closed_at TEXT,
    CONSTRAINT wallets_pk PRIMARY KEY (customer_key),
    CONSTRAINT wallets_state_known CHECK (state IN ('open', 'closed'))
);

CREATE TABLE accounts (
    account_id INTEGER PRIMARY KEY AUTOINCREMENT,
    owner_kind TEXT NOT NULL,
    -- `customer_key`, or the name of a system account such as `provider-clearing`.
    owner_key TEXT NOT NULL,
    currency TEXT NOT NULL,
    exponent INTEGER NOT NULL,
    -- Derived from the entries and checked against them by `ledger verify`. NULL for system
    -- accounts: every movement touches one, and a stored balance would serialise all customers.
    balance_minor INTEGER,
    CONSTRAINT accounts_owner_currency_unique UNIQUE (owner_kind, owner_key, currency, exponent),
    CONSTRAINT accounts_owner_kind_known CHECK (owner_kind IN ('customer', 'system')),
    CONSTRAINT accounts_exponent_range CHECK (exponent BETWEEN 0 AND 18),
    CONSTRAINT accounts_balance_where_customer CHECK ((owner_kind = 'customer') = (balance_minor IS NOT NULL)),
    -- SQLite turns an overflow into a floating-point number; refuse it here as well as in Rust.
    CONSTRAINT accounts_balance_integer CHECK (balance_minor IS NULL OR typeof(balance_minor) = 'integer'),
    CONSTRAINT accounts_balance_not_negative CHECK (balance_minor IS NULL OR balance_minor >= 0)
);

-- A customer holds a currency with one exponent only; two would be a hundredfold apart.
CREATE UNIQUE INDEX accounts_one_exponent_per_customer ON accounts (owner_key, currency) WHERE owner_kind = 'customer';

-- One row per operation id that was ever answered for good, and one per tombstone. Never deleted:
-- a command may arrive years late. The primary key decides every race.
CREATE TABLE operations (
    operation_key TEXT NOT NULL,
    operation_id TEXT NOT NULL,
    saga_id TEXT,
    kind TEXT NOT NULL,
    -- `claimed` lives only inside the transaction that executes the operation.
    state TEXT NOT NULL,
    -- Which way an update moves money; lets `ledger.stats` count without reading JSON.
    movement TEXT,
    -- What makes a repeat the same command; both NULL when only a revert of it has been seen.
    params_digest TEXT,
    params TEXT,
    memo TEXT,
    fence INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    -- The answer as sent, repeated word for word. NULL only while claimed.
    reply TEXT,
    -- The one revert that has offset this update.
    reverted_by TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
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
    entry_id INTEGER PRIMARY KEY AUTOINCREMENT,
    operation_key TEXT NOT NULL,
    -- No foreign key: its check would write a lock into the one row of the system account on every
    -- movement (PostgreSQL). `ledger verify` looks for strays instead.
    account_id INTEGER NOT NULL,
    -- Above zero into the account, below zero out of it.
    amount_minor INTEGER NOT NULL,
    -- The operation whose entry this one offsets; unique, so that nothing is offset twice.
    reverses_key TEXT,
    booked_at TEXT NOT NULL,
    CONSTRAINT entries_operation_fk FOREIGN KEY (operation_key) REFERENCES operations (operation_key),
    CONSTRAINT entries_once_per_operation UNIQUE (operation_key, account_id),
    CONSTRAINT entries_amount_not_zero CHECK (amount_minor <> 0),
    CONSTRAINT entries_amount_integer CHECK (typeof(amount_minor) = 'integer')
);

CREATE UNIQUE INDEX entries_reversed_once ON entries (reverses_key, account_id) WHERE reverses_key IS NOT NULL;
CREATE INDEX entries_account ON entries (account_id, entry_id);

-- The highest fence seen per saga. A row outlives its saga: a straggler may come after the end.
CREATE TABLE saga_fences (
    saga_key TEXT NOT NULL,
    saga_id TEXT NOT NULL,
    fence INTEGER NOT NULL,
    CONSTRAINT saga_fences_pk PRIMARY KEY (saga_key),
    CONSTRAINT saga_fences_not_negative CHECK (fence >= 0)
);
