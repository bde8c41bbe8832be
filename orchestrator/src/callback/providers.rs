//! All providers as configured: picks the profile and the adapter of a callback.

use super::adyen::Adyen;
use super::canonical::Canonical;
use super::fact::CallbackFact;
use super::profile::{Currencies, FormatName, ProfileError, ProviderProfile};
use super::stripe::Stripe;
use super::unreadable::{Problem, Unreadable, UnreadableCode};
use super::{CallbackFormat, RawCallback};
use contracts::id::Provider;
use contracts::money::CurrencyCode;
use serde::Deserialize;
use std::collections::BTreeMap;

/// The sections `[providers.<name>]` and `[currencies]`, and `unknown_providers`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ProvidersConfig {
    /// How each provider is read.
    pub providers: BTreeMap<String, ProviderProfile>,
    /// Decimals of currencies beyond ISO 4217, or instead of it.
    pub currencies: BTreeMap<CurrencyCode, u8>,
    /// What to do with a provider that has no section.
    pub unknown_providers: UnknownProviders,
}

/// What to do with a callback of a provider that has no section.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownProviders {
    /// Read it as canonical, with the default profile: a gateway of ours has translated it.
    #[default]
    Accept,
    /// Keep it for a person.
    Refuse,
}

/// All providers, checked.
#[derive(Debug, Clone, Default)]
pub struct Providers {
    profiles: BTreeMap<Provider, ProviderProfile>,
    currencies: Currencies,
    unknown: UnknownProviders,
    default_profile: ProviderProfile,
}

impl Providers {
    /// Checks the configuration.
    ///
    /// # Errors
    /// [`ProfileError`], naming the section and what to mend.
    pub fn new(config: ProvidersConfig) -> Result<Self, ProfileError> {
        let mut profiles = BTreeMap::new();
        for (name, profile) in config.providers {
            let provider = Provider::new(name.clone()).map_err(|error| ProfileError::Name {
                name: name.clone(),
                reason: error.to_string(),
            })?;
            profiles.insert(provider, profile.checked(&name)?);
        }
        Ok(Self {
            profiles,
            currencies: Currencies::new(config.currencies)?,
            unknown: config.unknown_providers,
            default_profile: ProviderProfile::default(),
        })
    }

    /// Reads a callback; one entry for each item of it, never none.
    #[must_use]
    pub fn parse(&self, raw: &RawCallback) -> Vec<Result<CallbackFact, Unreadable>> {
        let refuse = |problem: Problem| vec![Err(problem.report(&raw.provider, 0))];
        let profile = match (self.profiles.get(&raw.provider), self.unknown) {
            (Some(profile), _) => profile,
            (None, UnknownProviders::Accept) => &self.default_profile,
            (None, UnknownProviders::Refuse) => {
                return refuse(Problem::whole(
                    UnreadableCode::UnknownProvider,
                    format!("provider {0} has no section [providers.{0}]", raw.provider),
                ));
            }
        };
        if raw.body.len() > profile.max_body_bytes {
            return refuse(Problem::whole(
                UnreadableCode::BodyTooLarge,
                format!(
                    "the body has {} bytes, more than the {} read (max_body_bytes)",
                    raw.body.len(),
                    profile.max_body_bytes
                ),
            ));
        }
        match profile.format {
            FormatName::Canonical => Canonical.parse(raw, profile, &self.currencies),
            FormatName::Stripe => Stripe.parse(raw, profile, &self.currencies),
            FormatName::Adyen => Adyen.parse(raw, profile, &self.currencies),
        }
    }

    /// The currencies we hold.
    #[must_use]
    pub fn currencies(&self) -> &Currencies {
        &self.currencies
    }

    /// The configured profile of a provider.
    #[must_use]
    pub fn profile(&self, provider: &Provider) -> Option<&ProviderProfile> {
        self.profiles.get(provider)
    }
}
