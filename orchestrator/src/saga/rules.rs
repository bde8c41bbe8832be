//! What an installation lays down for its sagas. Values from the settings, handed in with each decision.

use std::collections::BTreeMap;

use contracts::id::Region;
use contracts::money::CurrencyCode;

/// Rules of one installation. Each replica has to be given the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// Regions whose wallet cannot do all that ours does; a region not listed can.
    pub capabilities: BTreeMap<Region, Capabilities>,
    /// Above so many minor units at risk a verb that settles money by hand needs a second person. A
    /// currency not listed has no limit.
    pub second_person_above: BTreeMap<CurrencyCode, i64>,
}

/// What a participant can do beyond executing commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// The revert of an operation it has not seen forbids that operation for ever. Where it does not, a
    /// command of unknown outcome must have a trustworthy status before its revert may be sent.
    pub tombstone: bool,
}

impl Capabilities {
    /// What our own region agent can do.
    pub const FULL: Self = Self { tombstone: true };
}

/// Every participant can do everything; no verb needs a second person.
pub static DEFAULT: Rules = Rules {
    capabilities: BTreeMap::new(),
    second_person_above: BTreeMap::new(),
};

impl Rules {
    /// What this region's wallet can do.
    #[must_use]
    pub fn capabilities_of(&self, region: &Region) -> Capabilities {
        self.capabilities
            .get(region)
            .copied()
            .unwrap_or(Capabilities::FULL)
    }
}

impl Default for Rules {
    fn default() -> Self {
        DEFAULT.clone()
    }
}
