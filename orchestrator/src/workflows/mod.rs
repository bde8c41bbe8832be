//! The workflows of this build. Versions with open sagas stay registered.

pub mod deposit;

use contracts::id::SagaId;

use crate::saga::Workflow;
use crate::saga::record::NOT_STARTED;

/// Workflows by name and version.
#[derive(Debug, Clone)]
pub struct Workflows(Vec<&'static Workflow>);

impl Default for Workflows {
    fn default() -> Self {
        Self(vec![&deposit::DEPOSIT])
    }
}

impl Workflows {
    /// These workflows and no others.
    #[must_use]
    pub fn new(workflows: Vec<&'static Workflow>) -> Self {
        Self(workflows)
    }

    /// The workflow a saga was started with; for one that is not started yet, that it would get.
    #[must_use]
    pub fn find(&self, name: &str, version: u32) -> Option<&'static Workflow> {
        if version == NOT_STARTED {
            return self.latest(name);
        }
        self.0
            .iter()
            .copied()
            .find(|workflow| workflow.name == name && workflow.version == version)
    }

    /// The workflow a new saga gets.
    #[must_use]
    pub fn latest(&self, name: &str) -> Option<&'static Workflow> {
        self.0
            .iter()
            .copied()
            .filter(|workflow| workflow.name == name)
            .max_by_key(|workflow| workflow.version)
    }

    /// The workflow a saga of this id has or would have.
    #[must_use]
    pub fn of(&self, saga_id: &SagaId) -> Option<&'static Workflow> {
        self.latest(saga_id.as_str().split('/').next()?)
    }

    /// Names of all workflows.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|workflow| workflow.name)
    }
}
