//! What the settings lay down for sagas.

use std::collections::BTreeMap;

use contracts::money::{CurrencyCode, Money};
use serde::Deserialize;

use super::{Config, ConfigError, field, region};
use crate::callback::Providers;
use crate::saga::rules::{Capabilities, Rules};

/// What a region's wallet can do, where it is not ours.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Participant {
    tombstone: bool,
}

impl Config {
    /// The rules that come in with each decision. Each replica has to be given the same; a person's dry run
    /// reads them as well.
    ///
    /// # Errors
    /// [`ConfigError`], naming the field.
    pub fn rules(&self) -> Result<Rules, ConfigError> {
        let listed: BTreeMap<String, Participant> =
            self.section("participants", self.settings.participants.as_ref())?;
        let capabilities = listed
            .into_iter()
            .map(|(name, Participant { tombstone })| {
                Ok((region("participants", &name)?, Capabilities { tombstone }))
            })
            .collect::<Result<_, ConfigError>>()?;
        Ok(Rules {
            capabilities,
            second_person_above: self.second_person_above()?,
        })
    }

    fn second_person_above(&self) -> Result<BTreeMap<CurrencyCode, i64>, ConfigError> {
        let name = "review.second_person_above";
        let limits = &self.settings.review.second_person_above;
        if limits.is_empty() {
            return Ok(BTreeMap::new());
        }
        let providers = Providers::new(self.providers()?)
            .map_err(|error| field("providers", &error.to_string()))?;
        let mut above = BTreeMap::new();
        for (code, amount) in limits {
            let limit = CurrencyCode::new(code)
                .and_then(|code| providers.currencies().get(code))
                .and_then(|currency| Money::parse(&amount.0, currency))
                .map_err(|error| field(name, &format!("{code}: {error}")))?;
            if limit.amount_minor() < 0 {
                return Err(field(name, &format!("{code}: must not be below zero")));
            }
            above.insert(limit.currency().code(), limit.amount_minor());
        }
        Ok(above)
    }
}
