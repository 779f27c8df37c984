//! The rules of a decision. A rule is a function from a view of the facts to a [`RuleResult`]. The
//! engine asks its rules in a fixed order: the first that acts wins, and the others state the waits
//! that block them. A [`PlanBuilder`] collects the results and turns them into a plan.

use evenkeel_runtime::{Engine, Plan, Requeue};

/// The result of a rule.
#[derive(Debug)]
pub enum RuleResult<E: Engine + ?Sized> {
    /// Act now; no later rule is asked.
    Act(Box<Actions<E>>),
    /// The rule cannot act yet. Later rules may act.
    Wait(E::Wait),
    /// No rule may act until the wait ends.
    Block(E::Wait),
    /// Act now; later rules may create and patch in the same plan, without a disruption.
    DisruptAndContinue(Box<E::Disruption>),
    /// Create now. The write may be rejected for ever, for example by a quota, and does not block
    /// later rules.
    CreateAndContinue(Vec<E::Create>),
    /// The rule does not apply.
    Pass,
}

impl<E: Engine + ?Sized> RuleResult<E> {
    /// Acts with a disruption alone.
    pub fn disruption(disruption: E::Disruption) -> Self {
        Self::Act(Box::new(Actions {
            disruption: Some(disruption),
            ..Actions::default()
        }))
    }

    /// Acts with one patch.
    pub fn patch(patch: E::Patch) -> Self {
        Self::Act(Box::new(Actions {
            patch: vec![patch],
            ..Actions::default()
        }))
    }

    /// Acts with creations.
    pub fn create(create: Vec<E::Create>) -> Self {
        Self::Act(Box::new(Actions {
            create,
            ..Actions::default()
        }))
    }

    /// Acts with objects to apply.
    pub fn apply(apply: Vec<E::Apply>) -> Self {
        Self::Act(Box::new(Actions {
            apply,
            ..Actions::default()
        }))
    }
}

/// The actions of a plan.
#[derive(Debug)]
pub struct Actions<E: Engine + ?Sized> {
    /// Objects that must never exist twice.
    pub create: Vec<E::Create>,
    /// Changes that disturb no client.
    pub patch: Vec<E::Patch>,
    /// Objects that should exist as described.
    pub apply: Vec<E::Apply>,
    /// The action that may disturb clients.
    pub disruption: Option<E::Disruption>,
}

// Written by hand: a derived impl would require `Default` of the engine, which is not data.
impl<E: Engine + ?Sized> Default for Actions<E> {
    fn default() -> Self {
        Self {
            create: Vec::new(),
            patch: Vec::new(),
            apply: Vec::new(),
            disruption: None,
        }
    }
}

/// The results of the rules, until they become a plan.
#[derive(Debug)]
pub struct PlanBuilder<E: Engine + ?Sized> {
    actions: Actions<E>,
    waits: Vec<E::Wait>,
    /// The disruption of a rule that let later rules continue.
    disruption: Option<E::Disruption>,
    /// The creations of rules that let later rules continue.
    creates: Vec<E::Create>,
    requeue: Requeue,
}

impl<E: Engine + ?Sized> Default for PlanBuilder<E> {
    fn default() -> Self {
        Self {
            actions: Actions::default(),
            waits: Vec::new(),
            disruption: None,
            creates: Vec::new(),
            requeue: Requeue::OnChange,
        }
    }
}

impl<E: Engine + ?Sized> PlanBuilder<E> {
    /// Asks rules in order, until one acts or blocks.
    pub fn ask<V: ?Sized>(&mut self, view: &V, rules: &[impl Fn(&V) -> RuleResult<E>]) {
        for rule in rules {
            if self.add(rule(view)) {
                break;
            }
        }
    }

    /// Adds the result of a rule; returns true if no later rule is asked.
    pub fn add(&mut self, result: RuleResult<E>) -> bool {
        match result {
            RuleResult::Act(actions) => {
                self.actions = *actions;
                true
            }
            RuleResult::Block(wait) => {
                self.waits.push(wait);
                true
            }
            RuleResult::Wait(wait) => {
                if !self.waits.contains(&wait) {
                    self.waits.push(wait);
                }
                false
            }
            RuleResult::DisruptAndContinue(disruption) => {
                self.disruption = Some(*disruption);
                false
            }
            RuleResult::CreateAndContinue(create) => {
                self.creates.extend(create);
                false
            }
            RuleResult::Pass => false,
        }
    }

    /// Returns the actions so far, for changes that are added whichever rule has won. Call it once every rule was asked.
    pub fn actions(&mut self) -> &mut Actions<E> {
        if let Some(disruption) = self.disruption.take() {
            self.actions.disruption = Some(disruption);
        }
        let creates = std::mem::take(&mut self.creates);
        self.actions.create.splice(..0, creates);
        &mut self.actions
    }

    /// Reconciles again at the earlier of `requeue` and the times so far.
    pub fn requeue(&mut self, requeue: Requeue) {
        self.requeue = self.requeue.or(requeue);
    }

    /// Returns the plan. `requeue_for` returns when a wait may have ended.
    pub fn finish(mut self, requeue_for: impl Fn(&E::Wait) -> Requeue) -> Plan<E> {
        let Actions {
            create,
            patch,
            apply,
            disruption,
        } = std::mem::take(self.actions());
        let requeue = self
            .waits
            .iter()
            .map(requeue_for)
            .fold(self.requeue, Requeue::or);
        Plan {
            create,
            patch,
            apply,
            disruption,
            waits: self.waits,
            requeue,
        }
    }
}

#[cfg(test)]
mod tests {
    use evenkeel_runtime::UnixTime;

    use super::*;

    #[derive(Debug)]
    struct Texts;

    impl Engine for Texts {
        type Facts = ();
        type Create = String;
        type Apply = String;
        type Patch = String;
        type Disruption = String;
        type Wait = String;

        fn decide((): &()) -> Plan<Self> {
            Plan::default()
        }
    }

    type Results = Vec<RuleResult<Texts>>;

    /// Returns the builder after these results of rules, and the number of rules that were asked.
    fn asked(results: Results) -> (PlanBuilder<Texts>, usize) {
        let mut builder = PlanBuilder::default();
        let mut asked = 0;
        for result in results {
            asked += 1;
            if builder.add(result) {
                break;
            }
        }
        (builder, asked)
    }

    fn plan(results: Results) -> Plan<Texts> {
        asked(results).0.finish(|_| Requeue::Poll)
    }

    fn wait(text: &str) -> RuleResult<Texts> {
        RuleResult::Wait(text.to_owned())
    }

    #[test]
    fn rules_are_asked_until_one_acts_or_blocks() {
        let act = || RuleResult::disruption("restart".to_owned());
        assert_eq!(asked(vec![RuleResult::Pass, wait("a"), act(), act()]).1, 3);
        let blocks = RuleResult::Block("quorum".to_owned());
        let (builder, asked) = asked(vec![blocks, act()]);
        assert_eq!(asked, 1);
        let plan = builder.finish(|_| Requeue::OnChange);
        assert!(plan.is_noop());
        assert_eq!(plan.waits, ["quorum"]);
    }

    #[test]
    fn a_wait_is_listed_once_and_waits_keep_the_order_of_the_rules() {
        let plan = plan(vec![wait("b"), wait("a"), wait("b")]);
        assert_eq!(plan.waits, ["b", "a"]);
        assert_eq!(plan.requeue, Requeue::Poll);
    }

    #[test]
    fn a_disruption_that_continues_replaces_that_of_a_later_rule() {
        let plan = plan(vec![
            RuleResult::DisruptAndContinue(Box::new("settle".to_owned())),
            RuleResult::disruption("restart".to_owned()),
        ]);
        assert_eq!(plan.disruption.as_deref(), Some("settle"));
    }

    #[test]
    fn creations_that_continue_come_before_those_of_a_later_rule() {
        let create = |name: &str| vec![name.to_owned()];
        let results = || {
            vec![
                RuleResult::CreateAndContinue(create("a")),
                RuleResult::CreateAndContinue(create("b")),
                RuleResult::create(create("c")),
            ]
        };
        assert_eq!(plan(results()).create, ["a", "b", "c"]);
        let (mut builder, _) = asked(results());
        builder.actions().create.push("d".to_owned());
        assert_eq!(
            builder.finish(|_| Requeue::Poll).create,
            ["a", "b", "c", "d"]
        );
    }

    #[test]
    fn the_earliest_time_of_waits_and_deadlines_is_the_requeue() {
        let (mut builder, _) = asked(vec![wait("a")]);
        builder.requeue(Requeue::At(UnixTime(7)));
        builder.requeue(Requeue::At(UnixTime(9)));
        let plan = builder.finish(|_| Requeue::At(UnixTime(8)));
        assert_eq!(plan.requeue, Requeue::At(UnixTime(7)));
    }

    #[test]
    fn a_list_of_rules_is_asked_with_the_same_view() {
        type Rule = fn(&u8) -> RuleResult<Texts>;
        let rules: [Rule; 2] = [
            |number| RuleResult::Wait(format!("{number}")),
            |number| RuleResult::patch(format!("set {number}")),
        ];
        let mut builder = PlanBuilder::default();
        builder.ask(&3, &rules);
        let plan = builder.finish(|_| Requeue::OnChange);
        assert_eq!(
            (plan.waits, plan.patch),
            (vec!["3".to_owned()], vec!["set 3".to_owned()])
        );
    }
}
