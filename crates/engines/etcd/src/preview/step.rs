//! The steps of a preview, and the actions that each consists of.

use std::collections::BTreeMap;

use evenkeel_runtime::Action;
use schemars::JsonSchema;
use serde::Serialize;

use super::step_texts::counted_objects;
use crate::actions::{ActionContext, etcd_action};
use crate::decide::Etcd;
use crate::identity::Uid;
use crate::names::Serial;

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum StepKind {
    /// Creates the identity, Services or Secrets.
    CreateObjects,
    /// Updates Services or Secrets.
    UpdateObjects,
    /// Creates or changes the PodDisruptionBudget.
    SetBudget,
    /// Sets or removes owner references.
    SetOwners,
    /// Requests larger volumes.
    ResizeVolumes,
    /// Restores a backup onto the volume of the first member of a new cluster.
    RestoreBackup,
    /// Starts the first member of a new cluster.
    StartSeed,
    /// Adds a member: claim, pod, learner, voter.
    AddMember,
    /// Removes a member and its pod.
    RemoveMember,
    /// Restarts a member with the current template.
    RestartMember,
    /// Creates the pod of a member again.
    StartMember,
    /// Adds a member to the client Service, or removes it.
    RouteClients,
    /// Deletes pods and claims of an abandoned bootstrap.
    DeleteObjects,
    /// Appends an entry to etcd's log for a member that waits for one.
    NudgeMember,
    /// Forces a snapshot on every member.
    ForceSnapshot,
    /// Finishes the bootstrap.
    FinishBootstrap,
    /// Begins the bootstrap anew.
    RestartBootstrap,
    /// Adopts or repairs the identity of an existing cluster.
    UpdateIdentity,
    /// Removes a member that the operator did not add.
    RemoveUnknownMember,
    /// Only records facts. Short output leaves it out.
    Record,
}

/// One step of a preview.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutlineStep {
    /// The kind.
    pub kind: StepKind,
    /// The earliest time in seconds from now, without the time that earlier steps take.
    pub after: i64,
    /// The name of the member.
    pub member: Option<String>,
    /// The step as an imperative sentence without a period.
    pub text: String,
    /// The reason; empty if the text contains it.
    pub reason: String,
    /// Whether bootstrap is not finished when the step begins.
    pub is_bootstrap: bool,
    /// The indexes of its actions in the course.
    pub actions: Vec<usize>,
}

/// An action with its index in the course and its time.
pub(super) struct IndexedAction<'p> {
    pub(super) action: Action<'p, Etcd>,
    pub(super) index: usize,
    pub(super) after: i64,
}

/// An action and the facts before it.
pub(super) struct Place<'a> {
    pub(super) context: &'a ActionContext<'a>,
    action: &'a IndexedAction<'a>,
    pub(super) after: i64,
    pub(super) is_bootstrap: bool,
}

impl<'a> Place<'a> {
    pub(super) fn new(context: &'a ActionContext<'a>, action: &'a IndexedAction<'a>) -> Self {
        let view = context.view;
        Self {
            context,
            action,
            after: action.after,
            is_bootstrap: view.is_none_or(|view| !view.identity.bootstrapped),
        }
    }

    /// Returns the reason of the action.
    pub(super) fn reason(&self) -> String {
        etcd_action(&self.action.action).reason(self.context)
    }

    pub(super) fn pod_serial(&self, uid: Uid) -> Option<Serial> {
        let mut pods = self.context.facts.pods.present().into_iter().flatten();
        pods.find(|pod| pod.uid == uid).map(|pod| pod.serial)
    }

    pub(super) fn claim_serial(&self, uid: Uid) -> Option<Serial> {
        let mut claims = self.context.facts.claims.present().into_iter().flatten();
        let claim = claims.find(|claim| claim.uid == uid);
        claim.map(|claim| claim.serial)
    }
}

/// Kind, text and reason of a step.
pub(super) struct Heading {
    kind: StepKind,
    text: String,
    reason: String,
}

impl Heading {
    pub(super) fn new(kind: StepKind, text: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
            reason: reason.into(),
        }
    }
}

/// A step that may get more actions.
struct Draft {
    step: OutlineStep,
    /// The objects of a step about several.
    objects: Vec<String>,
    /// Whether the main action of the step is still to come.
    is_weak: bool,
}

/// The steps so far, and the latest of each member.
#[derive(Default)]
pub(super) struct Drafts {
    drafts: Vec<Draft>,
    open: BTreeMap<Serial, usize>,
}

impl Drafts {
    /// Returns the steps with their texts.
    pub(super) fn finish(self) -> Vec<OutlineStep> {
        let steps = self.drafts.into_iter().map(|draft| {
            let Draft {
                mut step, objects, ..
            } = draft;
            if !objects.is_empty() {
                step.text = format!("{} {}", step.text, counted_objects(&objects));
            }
            step
        });
        steps.collect()
    }

    /// Begins a step and returns its index.
    pub(super) fn step(&mut self, at: &Place<'_>, heading: Heading) -> usize {
        self.drafts.push(Draft {
            step: OutlineStep {
                kind: heading.kind,
                after: at.after,
                member: None,
                text: heading.text,
                reason: heading.reason,
                is_bootstrap: at.is_bootstrap,
                actions: vec![at.action.index],
            },
            objects: Vec::new(),
            is_weak: false,
        });
        self.drafts.len() - 1
    }

    /// Begins a step about objects, or adds the action and its object to the last one of the same
    /// kind.
    pub(super) fn group(&mut self, at: &Place<'_>, heading: Heading, object: String) {
        let is_same = |draft: &Draft| {
            draft.step.kind == heading.kind
                && draft.step.after == at.after
                && !draft.objects.is_empty()
        };
        let index = match self.last() {
            Some(last) if is_same(&self.drafts[last]) => {
                self.append(last, at);
                last
            }
            _ => self.step(at, heading),
        };
        self.drafts[index].objects.push(object);
    }

    /// Adds an action to the open step of a member, or begins one.
    pub(super) fn member(&mut self, at: &Place<'_>, serial: Serial, heading: Heading) {
        match self.open(serial) {
            Some(step) if self.drafts[step].step.kind != StepKind::Record => self.append(step, at),
            _ => self.main(at, serial, heading),
        }
    }

    /// Adds the main action of a member's step: it completes a weak step, or begins one.
    pub(super) fn main(&mut self, at: &Place<'_>, serial: Serial, heading: Heading) {
        match self.open(serial) {
            Some(step) if self.drafts[step].is_weak => {
                self.append(step, at);
                let draft = &mut self.drafts[step];
                draft.is_weak = false;
                draft.step.kind = heading.kind;
                draft.step.text = heading.text;
                draft.step.reason = heading.reason;
            }
            _ => {
                let step = self.step(at, heading);
                self.assign(at, step, serial, false);
            }
        }
    }

    /// Adds an action that begins a member's step whose main action may follow.
    pub(super) fn weak(&mut self, at: &Place<'_>, serial: Option<Serial>, heading: Heading) {
        let step = self.step(at, heading);
        if let Some(serial) = serial {
            self.assign(at, step, serial, true);
        }
    }

    /// Adds an action that only records a fact.
    pub(super) fn record(&mut self, at: &Place<'_>, serial: Option<Serial>) {
        if let Some(step) = serial.and_then(|serial| self.open(serial)) {
            self.append(step, at);
            return;
        }
        let text = etcd_action(&at.action.action).describe(at.context);
        self.weak(
            at,
            serial,
            Heading::new(StepKind::Record, text, at.reason()),
        );
    }

    /// Adds an action to a step.
    pub(super) fn append(&mut self, step: usize, at: &Place<'_>) {
        if let Some(draft) = self.drafts.get_mut(step) {
            draft.step.actions.push(at.action.index);
        }
    }

    /// Adds a clause to the text of a step, in place of its reason.
    pub(super) fn complete(&mut self, step: usize, clause: &str) {
        if let Some(draft) = self.drafts.get_mut(step) {
            draft.step.text = format!("{} {clause}", draft.step.text);
            draft.step.reason.clear();
        }
    }

    /// Returns the latest step of a member.
    pub(super) fn open(&self, serial: Serial) -> Option<usize> {
        self.open.get(&serial).copied()
    }

    /// Returns the last step.
    pub(super) fn last(&self) -> Option<usize> {
        self.drafts.len().checked_sub(1)
    }

    /// Returns the last step if it is of this kind.
    pub(super) fn last_of(&self, kind: StepKind) -> Option<usize> {
        self.last()
            .filter(|last| self.drafts[*last].step.kind == kind)
    }

    /// Closes the steps of all members.
    pub(super) fn close_all(&mut self) {
        self.open.clear();
    }

    fn assign(&mut self, at: &Place<'_>, step: usize, serial: Serial, is_weak: bool) {
        let draft = &mut self.drafts[step];
        draft.is_weak = is_weak;
        draft.step.member = Some(at.context.member(serial));
        self.open.insert(serial, step);
    }
}
