//! A payment and the answers about it.

use crate::callback::{CallbackFact, FactField, PaymentIdentity};
use contracts::id::{CustomerId, ExternalId, Provider, Region, SagaId};
use contracts::money::{Currency, CurrencyCode, Money};
use contracts::quote::Quote;
use contracts::subject::short_digest;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where a payment stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PaymentStatus {
    /// Announced, or a saga works on it.
    Pending,
    /// Credited.
    Successful,
    /// No money came, or what was credited has been taken back by its own saga.
    Failed,
    /// Called off before money came.
    Cancelled,
    /// A person has to look at it.
    Review,
}

/// A payment as stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payment {
    /// Our id, derived from the identity, so that it is the same wherever it is computed.
    pub payment_id: String,
    /// Whose and which.
    #[serde(flatten)]
    pub identity: PaymentIdentity,
    /// Our own reference at the provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merchant_reference: Option<ExternalId>,
    /// Where it stands.
    pub status: PaymentStatus,
    /// The saga that works on it; only this one may change it. `None` while it is only announced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saga_id: Option<SagaId>,
    /// Who is to be credited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub customer: Option<CustomerId>,
    /// Where; pinned when a saga takes the payment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<Region>,
    /// What the platform announced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<Money>,
    /// What came in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paid: Option<Money>,
    /// The currency to credit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wallet_currency: Option<Currency>,
    /// How what came in became what was credited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<Quote>,
    /// What the wallet holds of it; there exactly when the payment is successful.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credited: Option<Money>,
    /// Why it failed, was cancelled or is in review.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// First seen.
    pub created_at: Timestamp,
    /// Last changed.
    pub updated_at: Timestamp,
}

/// A payment that the platform announces before any callback. What is `None` is not compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedPayment {
    /// The provider that will report it.
    pub provider: Provider,
    /// The merchant account there.
    #[serde(default)]
    pub account: String,
    /// The provider's id, when it is known already.
    #[serde(default)]
    pub external_id: Option<ExternalId>,
    /// Our own reference, which the provider will return.
    #[serde(default)]
    pub merchant_reference: Option<ExternalId>,
    /// The sum; of one capture, the most it may be.
    #[serde(default)]
    pub amount: Option<Money>,
    /// Who will pay.
    #[serde(default)]
    pub customer: Option<CustomerId>,
    /// Where he is to be credited.
    #[serde(default)]
    pub region: Option<Region>,
    /// The currency to credit.
    #[serde(default)]
    pub wallet_currency: Option<Currency>,
}

/// Answer to the announcement of a payment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Announced {
    /// It is stored now, or was before with the same data.
    Stored,
    /// It is there with other data, which stay as they are.
    Differs {
        /// In these fields.
        fields: Vec<FactField>,
    },
    /// It names neither the provider's id nor our reference.
    WithoutId,
}

/// Answer to `find_or_create`; the same for good for one operation id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Found {
    /// The saga owns the payment now.
    Payment(FoundPayment),
    /// A definite refusal: nothing was changed, nothing may be credited.
    Refused(Refused),
}

/// A payment taken by a saga.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundPayment {
    /// Our id.
    pub payment_id: String,
    /// Who is to be credited.
    pub customer: CustomerId,
    /// Where; the same in every later answer to this saga.
    pub region: Region,
    /// What came in; `None` while nothing has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paid: Option<Money>,
    /// The currency to credit; `None` while no sum is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wallet_currency: Option<Currency>,
    /// Whether there was no row before.
    pub created: bool,
    /// Whether the fact given was money that has come. A saga that waited asks again with the fact
    /// it waited for, and credits on that answer only.
    pub may_credit: bool,
}

/// Why a payment is not the saga's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub enum Refused {
    /// The fact contradicts what is known of the payment.
    Mismatch {
        /// In these fields.
        fields: Vec<FactField>,
        /// For a person: what is stored and what came.
        message: String,
    },
    /// Neither the callback nor the payment says who paid.
    CustomerUnknown,
    /// The region claimed (or in the directory) is not configured.
    UnknownRegion {
        /// Its name.
        region: Region,
    },
    /// Another saga has it: one payment is credited by one saga.
    OwnedByOther {
        /// Which.
        saga_id: SagaId,
        /// How far it is.
        status: PaymentStatus,
    },
    /// This saga has closed it before: a late arrival of a command that was given up.
    Closed {
        /// As what.
        status: PaymentStatus,
    },
    /// A refund or dispute makes no deposit.
    NotADeposit,
    /// A text that the database cannot hold.
    BadText {
        /// In this field.
        field: String,
    },
}

/// Answer to a change of status; the same for good for one operation id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Marked {
    /// The payment stands so, by this change or before it.
    Done {
        /// Our id.
        payment_id: String,
        /// Its status.
        status: PaymentStatus,
    },
    /// Not a legal move: nothing was changed. For an undo this means that there is nothing of this
    /// saga to undo.
    Refused {
        /// Where the payment stands; `None` when there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        status: Option<PaymentStatus>,
        /// The saga that has it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        owner: Option<SagaId>,
        /// For a person.
        message: String,
    },
}

/// Successful payments of one currency.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CurrencyTotal {
    /// The currency credited.
    pub currency: CurrencyCode,
    /// Its decimals.
    pub exponent: u8,
    /// How many.
    pub count: u64,
    /// Their sum in minor units; wider than one payment can be.
    pub credited_minor: i128,
}

/// What reconciliation compares with the wallets.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Payments by status.
    pub count_by_status: BTreeMap<PaymentStatus, u64>,
    /// What was credited, by currency.
    pub credited: Vec<CurrencyTotal>,
}

/// Which payments to list.
#[derive(Debug, Clone, Default)]
pub struct PaymentFilter {
    /// Only of this status.
    pub status: Option<PaymentStatus>,
    /// Only of this external id, byte for byte.
    pub external_id: Option<ExternalId>,
    /// Only after this payment id, for the next page.
    pub after: Option<String>,
}

impl PaymentStatus {
    /// All statuses.
    pub const ALL: [Self; 5] = [
        Self::Pending,
        Self::Successful,
        Self::Failed,
        Self::Cancelled,
        Self::Review,
    ];

    /// The word in SQL and JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Successful => "successful",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Review => "review",
        }
    }

    /// The status of a word.
    #[must_use]
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Whether no saga works on it any more and no money of it is in a wallet.
    #[must_use]
    pub fn is_closed(self) -> bool {
        matches!(self, Self::Failed | Self::Cancelled)
    }
}

impl std::fmt::Display for PaymentStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Payment {
    /// Our id of a payment: the same text for the same identity, for good.
    #[must_use]
    pub fn id_of(identity: &PaymentIdentity) -> String {
        format!("pay_{}", short_digest(identity.to_string().as_bytes()))
    }

    /// A payment of which nothing is known yet.
    pub(super) fn new(identity: PaymentIdentity, now: Timestamp) -> Self {
        Self {
            payment_id: Self::id_of(&identity),
            identity,
            merchant_reference: None,
            status: PaymentStatus::Pending,
            saga_id: None,
            customer: None,
            region: None,
            expected: None,
            paid: None,
            wallet_currency: None,
            quote: None,
            credited: None,
            reason: None,
            created_at: now,
            updated_at: now,
        }
    }
}

impl ExpectedPayment {
    /// An announcement that a fact could meet, with nothing stated but the provider.
    #[must_use]
    pub fn of(provider: Provider) -> Self {
        Self {
            provider,
            account: String::new(),
            external_id: None,
            merchant_reference: None,
            amount: None,
            customer: None,
            region: None,
            wallet_currency: None,
        }
    }

    /// The row of a payment that is announced by the provider's id.
    pub(super) fn as_row(&self, identity: PaymentIdentity, now: Timestamp) -> Payment {
        Payment {
            merchant_reference: self.merchant_reference.clone(),
            customer: self.customer.clone(),
            region: self.region.clone(),
            expected: self.amount,
            wallet_currency: self.wallet_currency,
            ..Payment::new(identity, now)
        }
    }

    /// What an announced row, or one made by a callback, says of the payment as a whole.
    pub(super) fn of_row(row: &Payment) -> Self {
        Self {
            provider: row.identity.provider.clone(),
            account: row.identity.account.clone(),
            external_id: Some(row.identity.external_id.clone()),
            merchant_reference: row.merchant_reference.clone(),
            amount: row.expected,
            customer: row.customer.clone(),
            // A region is an announcement only until a saga pins one.
            region: row.region.clone().filter(|_| row.saga_id.is_none()),
            wallet_currency: row.wallet_currency,
        }
    }

    /// The fields in which the announcement contradicts a row that is already there.
    pub(super) fn differs_from_row(&self, row: &Payment) -> Vec<FactField> {
        let known = Self {
            amount: row.expected.or(row.paid),
            ..Self::of_row(row)
        };
        self.differs_from(&known)
    }

    /// The fields in which two announcements of one payment contradict each other.
    pub(super) fn differs_from(&self, other: &Self) -> Vec<FactField> {
        let mut fields = match (self.amount, other.amount) {
            (Some(a), Some(b)) => crate::callback::money_differs(a, b),
            (Some(_) | None, None) | (None, Some(_)) => Vec::new(),
        };
        if differ(self.customer.as_ref(), other.customer.as_ref()) {
            fields.push(FactField::Customer);
        }
        if differ(
            self.wallet_currency.as_ref(),
            other.wallet_currency.as_ref(),
        ) {
            fields.push(FactField::WalletCurrency);
        }
        if differ(self.region.as_ref(), other.region.as_ref()) {
            fields.push(FactField::Region);
        }
        fields
    }

    /// The fields in which a callback contradicts the announcement. A capture is a part, so its sum
    /// may be smaller.
    #[must_use]
    pub fn differs(&self, fact: &CallbackFact) -> Vec<FactField> {
        let said = Self {
            amount: fact.amount,
            customer: fact.customer.clone(),
            region: fact.region.clone(),
            wallet_currency: fact.wallet_currency,
            ..Self::of(fact.payment.provider.clone())
        };
        let mut fields = self.differs_from(&said);
        if let (Some(expected), Some(paid), Some(_)) =
            (self.amount, fact.amount, &fact.payment.capture_id)
            && paid.currency() == expected.currency()
            && paid.amount_minor() < expected.amount_minor()
        {
            fields.retain(|field| *field != FactField::Amount);
        }
        fields
    }
}

/// Both stated, and not the same.
fn differ<T: PartialEq>(first: Option<&T>, second: Option<&T>) -> bool {
    matches!((first, second), (Some(a), Some(b)) if a != b)
}
