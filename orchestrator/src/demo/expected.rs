//! What must come of the story, computed from the story alone.

use super::DemoError;
use super::callbacks::{money, post};
use super::story::{self, Deposit, Ends, Notice, Psp, Says, Telling};
use crate::saga;
use crate::saga::record::Status;
use contracts::id::SagaId;
use contracts::money::Money;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Whose money, where and in which currency.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WalletKey {
    pub(super) region: String,
    pub(super) customer: String,
    pub(super) currency: String,
}

/// What a payment must have come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ExpectedDeposit {
    /// The provider's id.
    pub(super) external_id: &'static str,
    pub(super) provider: &'static str,
    pub(super) ends: Ends,
    pub(super) wallet: WalletKey,
    pub(super) credited: Money,
    /// Each saga of the payment and its end; the last one is the one that counts.
    pub(super) sagas: Vec<(SagaId, Status)>,
}

/// What must come of the story.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Expected {
    pub(super) deposits: Vec<ExpectedDeposit>,
    /// What each wallet must hold.
    pub(super) wallets: BTreeMap<WalletKey, Money>,
    /// Callbacks posted.
    pub(super) callbacks: usize,
    /// Callbacks that no earlier one equals byte for byte.
    pub(super) distinct_callbacks: usize,
    /// Facts in those: a batch tells several.
    pub(super) items: usize,
    /// Facts that a saga must have known already.
    pub(super) known_facts: u64,
    /// Records that wait for a person and are no saga.
    pub(super) cases: usize,
}

impl Expected {
    /// Reads it off the story.
    ///
    /// # Errors
    /// When the story is wrong.
    pub(super) fn of_the_story() -> Result<Self, DemoError> {
        let mut expected = Self {
            deposits: Vec::new(),
            wallets: BTreeMap::new(),
            callbacks: 0,
            distinct_callbacks: 0,
            items: 0,
            known_facts: 0,
            cases: 0,
        };
        let mut bodies = BTreeSet::new();
        let mut paid: BTreeMap<(Psp, &str), u64> = BTreeMap::new();
        for telling in story::tellings() {
            match telling {
                Telling::Callback(event_id, notices) => {
                    expected.callbacks += 1;
                    // Signatures differ each time, bodies do not: any instant will do.
                    let post = post(event_id, notices, Timestamp::UNIX_EPOCH)?;
                    if !bodies.insert((post.psp, post.body)) {
                        continue;
                    }
                    expected.distinct_callbacks += 1;
                    expected.items += post.items;
                    for Notice(deposit, says) in *notices {
                        if deposit.ends == Ends::Distrusted {
                            expected.cases += 1;
                        } else if says.is_paid() {
                            *paid.entry((deposit.psp, deposit.id)).or_default() += 1;
                        }
                    }
                }
                Telling::Garbage(_, text) => {
                    expected.callbacks += 1;
                    if bodies.insert((Psp::Paylink, text.as_bytes().to_vec())) {
                        expected.distinct_callbacks += 1;
                        expected.items += 1;
                        expected.cases += 1;
                    }
                }
                Telling::Confirmation(_) => {}
            }
        }
        expected.known_facts = paid.values().map(|count| count.saturating_sub(1)).sum();
        for deposit in story::deposits() {
            let deposit = ExpectedDeposit::of(deposit)?;
            if deposit.is_credited() {
                let held = match expected.wallets.get(&deposit.wallet) {
                    None => Ok(deposit.credited),
                    Some(held) => held.checked_add(deposit.credited),
                }
                .map_err(|error| DemoError::Story(error.to_string()))?;
                expected.wallets.insert(deposit.wallet.clone(), held);
            }
            expected.deposits.push(deposit);
        }
        Ok(expected)
    }

    /// How each saga must have ended, cases left out.
    pub(super) fn sagas(&self) -> BTreeMap<SagaId, Status> {
        self.deposits
            .iter()
            .flat_map(|deposit| deposit.sagas.iter().cloned())
            .collect()
    }

    /// How each saga must stand when the first act is over.
    pub(super) fn sagas_after_first_act(&self) -> BTreeMap<SagaId, Status> {
        let mut first = BTreeMap::new();
        let notices = story::ACTS[0]
            .tellings
            .iter()
            .flat_map(|telling| match telling {
                Telling::Callback(_, notices) => *notices,
                Telling::Garbage(..) | Telling::Confirmation(_) => &[],
            });
        for Notice(deposit, says) in notices {
            let expected = self.deposits.iter().find(|expected| {
                (expected.provider, expected.external_id) == (deposit.psp.name(), deposit.id)
            });
            let Some((saga_id, status)) = expected.and_then(|expected| expected.sagas.first())
            else {
                continue;
            };
            let status = match says {
                Says::Pending => Status::Waiting,
                Says::Paid | Says::ChargePaid | Says::Refused | Says::Expired => *status,
            };
            first.insert(saga_id.clone(), status);
        }
        first
    }

    /// How many payments must be credited.
    pub(super) fn credits(&self) -> usize {
        self.deposits
            .iter()
            .filter(|deposit| deposit.is_credited())
            .count()
    }

    /// Callbacks that repeat an earlier one byte for byte.
    pub(super) fn exact_repeats(&self) -> usize {
        self.callbacks - self.distinct_callbacks
    }
}

impl ExpectedDeposit {
    fn of(deposit: &Deposit) -> Result<Self, DemoError> {
        let first = saga_id(deposit);
        let sagas = match deposit.ends {
            Ends::Credited => vec![(first, Status::Completed)],
            Ends::CreditedAtSecondTry => {
                let second = saga::next_generation(&first);
                vec![(first, Status::Failed), (second, Status::Completed)]
            }
            Ends::Refused => vec![(first, Status::Failed)],
            Ends::TurnedBack => vec![(first, Status::Compensated)],
            Ends::Distrusted => Vec::new(),
        };
        Ok(Self {
            external_id: deposit.id,
            provider: deposit.psp.name(),
            ends: deposit.ends,
            wallet: WalletKey {
                region: deposit.home.to_owned(),
                customer: deposit.customer.to_owned(),
                currency: deposit.credited.1.to_owned(),
            },
            credited: money(deposit.credited)?,
            sagas,
        })
    }

    /// Whether money of it must be in the wallet.
    pub(super) fn is_credited(&self) -> bool {
        matches!(self.ends, Ends::Credited | Ends::CreditedAtSecondTry)
    }
}

/// The first saga of a payment: provider, its id and, where there is one, the merchant account.
pub(super) fn saga_id(deposit: &Deposit) -> SagaId {
    let account = match deposit.psp {
        Psp::Adyen => Some(format!("account:{}", super::callbacks::ADYEN_ACCOUNT)),
        Psp::Stripe | Psp::Paylink => None,
    };
    let mut parts = vec![deposit.psp.name(), deposit.id];
    parts.extend(account.as_deref());
    SagaId::from_parts("deposit", &parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_are_those_counted_by_hand() {
        let expected = Expected::of_the_story().expect("story");
        let ends = |status: Status| {
            expected
                .sagas()
                .values()
                .filter(|&&found| found == status)
                .count()
        };
        assert_eq!((expected.callbacks, expected.exact_repeats()), (34, 3));
        assert_eq!((expected.items, expected.known_facts), (35, 3));
        assert_eq!((expected.credits(), ends(Status::Completed)), (25, 25));
        assert_eq!(
            (
                ends(Status::Failed),
                ends(Status::Compensated),
                expected.cases
            ),
            (3, 1, 2)
        );
        let wallet = |region: &str, customer: &str, currency: &str| {
            let key = WalletKey {
                region: region.to_owned(),
                customer: customer.to_owned(),
                currency: currency.to_owned(),
            };
            expected.wallets[&key].decimal_text()
        };
        assert_eq!(wallet("eu", "bruno", "EUR"), "109.00");
        assert_eq!(wallet("asia", "noor", "KWD"), "21.556");
        assert_eq!(wallet("asia", "kenji", "JPY"), "27237");
    }
}
