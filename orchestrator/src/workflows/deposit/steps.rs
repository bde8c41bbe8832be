//! The steps of a deposit: what each asks of whom.

use contracts::command::{WalletRevert, WalletUpdate};
use contracts::id::{OperationId, Region};
use contracts::money::{Currency, Money};
use contracts::quote::Quote;
use contracts::reply::WalletReply;
use serde::{Deserialize, Serialize};

use crate::callback::{CallbackFact, PaymentIdentity};
use crate::payments::{FoundPayment, Marked};
use crate::saga::flow::{Request, Step};
use crate::saga::record::Participant;

/// Step 1. Idempotent by the payment's natural key.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FindOrCreatePayment {
    pub(crate) fact: CallbackFact,
}

/// Undo of step 1.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MarkCancelled {
    pub(crate) payment: PaymentIdentity,
    pub(crate) reason: String,
}

/// Instead of step 1 when the provider reports a refusal. It closes the payment, so the saga that says so
/// is stored before: at another replica the same saga may just have been started by money.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct RecordRefusal {
    pub(crate) payment: PaymentIdentity,
    pub(crate) reason: String,
}

/// Step 3. Fetched once; the quote is a fact from the next commit on, and unused before it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ConvertCurrency {
    pub(crate) paid: Money,
    pub(crate) to: ToCurrency,
}

/// A currency as a parameter.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct ToCurrency {
    pub(crate) code: contracts::money::CurrencyCode,
    pub(crate) exponent: u8,
}

/// Step 4, the pivot.
#[derive(Debug)]
pub(super) struct CreditWallet {
    pub(super) region: Region,
    pub(super) update: WalletUpdate,
}

/// Undo of step 4, addressed by operation id.
#[derive(Debug)]
pub(super) struct RevertWallet {
    pub(super) region: Region,
    pub(super) target: OperationId,
}

/// Step 5. Idempotent by its operation id.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MarkSuccessful {
    pub(crate) payment: PaymentIdentity,
    pub(crate) quote: Quote,
}

/// Undo of step 5, for an operator's decision after the pivot.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct MarkFailed {
    pub(crate) payment: PaymentIdentity,
    pub(crate) reason: String,
}

impl From<Currency> for ToCurrency {
    fn from(currency: Currency) -> Self {
        Self {
            code: currency.code(),
            exponent: currency.exponent(),
        }
    }
}

impl Request for FindOrCreatePayment {
    const KIND: &'static str = "payments.find_or_create";
    const REPEATABLE: bool = true;
    fn participant(&self) -> Participant {
        Participant::Core
    }
}

impl Step for FindOrCreatePayment {
    const NAME: &'static str = "find-or-create-payment";
    type Reply = FoundPayment;
}

impl Request for MarkCancelled {
    const KIND: &'static str = "payments.mark_cancelled";
    fn participant(&self) -> Participant {
        Participant::Core
    }
}

impl Request for RecordRefusal {
    const KIND: &'static str = "payments.mark_failed";
    fn participant(&self) -> Participant {
        Participant::Core
    }
}

impl Step for RecordRefusal {
    const NAME: &'static str = "record-refusal";
    type Reply = Marked;
}

impl Request for ConvertCurrency {
    const KIND: &'static str = "fx.quote";
    const REPEATABLE: bool = true;
    fn participant(&self) -> Participant {
        Participant::Core
    }
}

impl Step for ConvertCurrency {
    const NAME: &'static str = "convert-currency";
    type Reply = Quote;
}

impl Serialize for CreditWallet {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.update.serialize(serializer)
    }
}

impl Request for CreditWallet {
    const KIND: &'static str = "wallet.update";
    fn participant(&self) -> Participant {
        Participant::Region(self.region.clone())
    }
}

impl Step for CreditWallet {
    const NAME: &'static str = "credit-wallet";
    type Reply = WalletReply;
}

impl Serialize for RevertWallet {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WalletRevert {
            target: self.target.clone(),
            memo: None,
        }
        .serialize(serializer)
    }
}

impl Request for RevertWallet {
    const KIND: &'static str = "wallet.revert";
    fn participant(&self) -> Participant {
        Participant::Region(self.region.clone())
    }
}

impl Request for MarkSuccessful {
    const KIND: &'static str = "payments.mark_successful";
    const REPEATABLE: bool = true;
    fn participant(&self) -> Participant {
        Participant::Core
    }
}

impl Step for MarkSuccessful {
    const NAME: &'static str = "update-payment-status";
    type Reply = Marked;
}

impl Request for MarkFailed {
    const KIND: &'static str = "payments.mark_failed";
    fn participant(&self) -> Participant {
        Participant::Core
    }
}
