//! What writes for one cluster: the loop's hand, and the operator beside it.

use std::ops::Deref;

use evenkeel::Key;
use evenkeel_api::labels::MANAGER;

use crate::operator::{Operator, UNWATCHED};

/// What writes for one resource.
pub(super) struct Hand<'a> {
    pub(super) operator: &'a Operator,
    pub(super) key: &'a Key,
    writes: evenkeel::Hand<'a>,
}

impl<'a> Hand<'a> {
    pub(super) fn new(operator: &'a Operator, key: &'a Key) -> Self {
        let (client, written) = (&operator.client, &operator.written);
        let writes = evenkeel::Hand { client, written, key, manager: MANAGER, unwatched: UNWATCHED };
        Self { operator, key, writes }
    }
}

impl<'a> Deref for Hand<'a> {
    type Target = evenkeel::Hand<'a>;

    fn deref(&self) -> &Self::Target {
        &self.writes
    }
}
