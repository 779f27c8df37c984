//! A leaf is walked: set, changed, left out, made what it cannot be, and put back. After each step the cluster is what a new one
//! with that very spec would be.

use std::collections::BTreeMap;

use evenkeel_api::EtcdCluster;
use serde_json::{Value, json};

use crate::lived::{Came, Lived, Rollout};
use crate::rows::{Kind, Row};
use crate::schema::{Answer, Schema};

/// What goes wrong, as sentences.
pub(crate) type Wrong = Vec<String>;

/// What is needed again and again.
pub(crate) struct Lab {
    pub(crate) schema: Schema,
    /// Clusters at rest that were created with a spec.
    fresh: BTreeMap<String, Lived>,
}

/// What an operator says to a spec that Kubernetes would hand to it.
enum Word {
    /// It cannot even read it.
    Unreadable(String),
    /// It is in force.
    Accepted(Box<EtcdCluster>),
    /// Some of it is not, for this reason.
    Refused(Box<EtcdCluster>, String),
}

/// A resource with this in its spec.
pub(crate) fn manifest(spec: &Value) -> Value {
    let mut whole = json!({ "version": "3.6.16" });
    whole
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    json!({
        "apiVersion": "evenkeel.dev/v1alpha1",
        "kind": "EtcdCluster",
        "metadata": { "name": "orders", "namespace": "shop", "uid": "00000000-0000-0000-0000-000000000001", "generation": 1 },
        "spec": whole,
    })
}

/// The same with a leaf that is this, or left out.
pub(crate) fn edited(manifest: &Value, leaf: &str, value: Option<&Value>) -> Value {
    let mut edited = manifest.clone();
    let path: Vec<&str> = leaf.split('.').collect();
    let (last, parents) = path.split_last().unwrap();
    let mut at = &mut edited;
    for name in parents {
        let list = name.strip_suffix("[]");
        at = at
            .as_object_mut()
            .unwrap()
            .entry(list.unwrap_or(name))
            .or_insert_with(|| json!({}));
        if list.is_some() {
            at = &mut at[0];
        }
    }
    match value {
        Some(value) => at[*last] = value.clone(),
        None => drop(at.as_object_mut().unwrap().remove(*last)),
    }
    edited
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self {
            schema: Schema::of_the_types(),
            fresh: BTreeMap::new(),
        }
    }

    /// A cluster at rest that was created with this.
    pub(crate) fn fresh(&mut self, manifest: &Value) -> Result<Lived, String> {
        let whole = self.schema.defaulted(manifest);
        if let Some(there) = self.fresh.get(&whole.to_string()) {
            return Ok(there.clone());
        }
        if whole["spec"]["paused"] == true {
            // Nothing is created as long as it is: it has been paused since.
            let mut paused = self.fresh(&edited(manifest, "spec.paused", None))?;
            paused.edit(serde_json::from_value(whole.clone()).unwrap());
            paused.rest()?;
            return Ok(paused);
        }
        if let Answer::Malformed(why) | Answer::Refused(why) = self.schema.answer(&whole, None) {
            return Err(format!("it is refused when it is created: {why:?}"));
        }
        let mut lived = Lived::new(serde_json::from_value(whole.clone()).unwrap());
        lived.rest()?;
        if let Some(why) = lived.is_unwell() {
            return Err(format!("a new cluster is not well: {why}"));
        }
        self.fresh.insert(whole.to_string(), lived.clone());
        Ok(lived)
    }

    /// What an API server says to an edit.
    fn answer(&self, lived: &Lived, new: &Value) -> Answer {
        let old = serde_json::to_value(&lived.kube.resource).unwrap();
        let mut new = self.schema.defaulted(new);
        new["status"] = json!(lived.status());
        self.schema.answer(&new, Some(&old))
    }

    /// What an operator says to it.
    fn word(&self, lived: &Lived, new: &Value) -> Word {
        let whole = self.schema.defaulted(new);
        let resource: EtcdCluster = match serde_json::from_value(whole) {
            Ok(resource) => resource,
            Err(why) => return Word::Unreadable(why.to_string()),
        };
        let mut then = lived.clone();
        then.edit(resource.clone());
        match then.look() {
            Ok((found, _)) => match found.rejection {
                None => Word::Accepted(Box::new(resource)),
                Some(refusal) => Word::Refused(Box::new(resource), refusal.to_string()),
            },
            Err(why) => Word::Refused(Box::new(resource), why),
        }
    }

    /// Edits a cluster as Kubernetes and the operator accept it.
    pub(crate) fn edit(&self, lived: &mut Lived, to: &Value) {
        let answer = self.answer(lived, to);
        assert!(matches!(answer, Answer::Stored), "{to}: {answer:?}");
        let Word::Accepted(resource) = self.word(lived, to) else {
            panic!("{to} is refused")
        };
        lived.edit(*resource);
    }

    /// Walks a leaf, with data where it is said to be.
    pub(crate) fn walk(&mut self, row: &Row, ephemeral: bool) -> Wrong {
        let mut base = manifest(&row.base);
        if ephemeral {
            base = edited(&base, "spec.storage.ephemeral", Some(&json!(true)));
        }
        let lived = match self.fresh(&base) {
            Ok(lived) => lived,
            Err(why) => return vec![format!("before: {why}")],
        };
        let mut walk = Walk {
            lab: self,
            row,
            ephemeral,
            lived,
            now: base.clone(),
            wrong: Vec::new(),
        };
        let (set, change) = (
            edited(&base, row.leaf, Some(&row.set)),
            edited(&base, row.leaf, Some(&row.change)),
        );
        match row.kind {
            Kind::Nothing | Kind::Beside | Kind::Rolled | Kind::Moved | Kind::Scaled => {
                // What has grown does not shrink.
                if row.leaf != "spec.storage.size" || ephemeral {
                    walk.turns_back(&set);
                }
                walk.goes("set", &set);
                walk.goes("changed", &change);
                let unset = edited(&base, row.leaf, None);
                if row.stays(ephemeral).0 {
                    walk.is_refused("left out", &unset);
                } else {
                    walk.goes("left out", &unset);
                }
            }
            // What could not be chosen with the other kind of data cannot be tried.
            Kind::Kept => walk.is_kept(&set),
            Kind::Never => {
                for (how, to) in [("set", &set), ("changed", &change)] {
                    walk.is_refused(how, to);
                    if walk.lab.fresh(to).is_ok() {
                        walk.says(how, "a new cluster may have it".to_owned());
                    }
                }
            }
        }
        for bad in &row.bad {
            walk.is_refused(
                &format!("{bad}"),
                &edited(&walk.now.clone(), row.leaf, Some(bad)),
            );
        }
        if row.stays(ephemeral).1 {
            walk.is_refused("put back", &base);
        } else {
            walk.goes("put back", &base);
        }
        walk.wrong
    }
}

struct Walk<'l> {
    lab: &'l mut Lab,
    row: &'l Row,
    ephemeral: bool,
    lived: Lived,
    /// What was accepted last.
    now: Value,
    wrong: Wrong,
}

impl Walk<'_> {
    fn says(&mut self, how: &str, what: String) {
        self.wrong.push(format!("{how}: {what}"));
    }

    fn is_the_same(&self, to: &Value) -> bool {
        let whole = |manifest: &Value| self.lab.schema.defaulted(manifest);
        let spec = |manifest: &Value| {
            serde_json::from_value::<EtcdCluster>(whole(manifest))
                .unwrap()
                .spec
        };
        spec(to) == spec(&self.now)
    }

    /// How it should be rolled out.
    fn rollout(&self, to: &Value) -> Rollout {
        let same = self.is_the_same(to);
        match self.row.kind {
            _ if same => Rollout::Nothing,
            Kind::Moved => Rollout::Replaced,
            Kind::Rolled if self.ephemeral => Rollout::Replaced,
            Kind::Rolled => Rollout::Restarted,
            Kind::Scaled => Rollout::Scaled,
            Kind::Nothing | Kind::Beside | Kind::Kept | Kind::Never => Rollout::Nothing,
        }
    }

    /// An edit that is accepted, and rolled out.
    fn goes(&mut self, how: &str, to: &Value) {
        if let Answer::Malformed(why) | Answer::Refused(why) = self.lab.answer(&self.lived, to) {
            return self.says(how, format!("the schema refuses it: {why:?}"));
        }
        match self.lab.word(&self.lived, to) {
            Word::Unreadable(why) => {
                self.says(how, format!("it is stored, and cannot be read: {why}"))
            }
            Word::Refused(_, why) => {
                self.says(how, format!("it is stored, and then refused: {why}"))
            }
            Word::Accepted(resource) => {
                let (expected, before) = (self.rollout(to), self.lived.made());
                let kind = if self.ephemeral {
                    self.row.in_pods()
                } else {
                    self.row.kind
                };
                let shows = !self.is_the_same(to) && kind != Kind::Nothing;
                let known = self.wrong.len();
                self.lived.edit(*resource);
                self.now = to.clone();
                match self.lived.rest() {
                    Ok(came) => self.came(how, expected, &came),
                    Err(why) => return self.says(how, why),
                }
                match self.lab.fresh(to) {
                    Ok(fresh) => self.is_like(how, "a new one", &fresh.state()),
                    Err(why) => self.says(how, why),
                }
                // A leaf that nothing is built from would be the same in a new one.
                if self.wrong.len() == known && shows != (self.lived.made() != before) {
                    self.says(
                        how,
                        format!(
                            "{} comes of it",
                            if shows { "nothing" } else { "something" }
                        ),
                    );
                }
            }
        }
    }

    /// An edit that is taken back when it is half rolled out.
    fn turns_back(&mut self, to: &Value) {
        let how = "set and taken back half-way";
        let Word::Accepted(there) = self.lab.word(&self.lived, to) else {
            return;
        };
        let (mut whole, mut half) = (self.lived.clone(), self.lived.clone());
        whole.edit((*there).clone());
        let events = whole.rest().map_or(0, |came| came.events);
        half.edit(*there);
        if let Err(why) = half.live(events / 2) {
            return self.says(how, why);
        }
        half.kube.resource.status = Some(half.status());
        if let Answer::Malformed(why) | Answer::Refused(why) = self.lab.answer(&half, &self.now) {
            return self.says(how, format!("the schema refuses it: {why:?}"));
        }
        let Word::Accepted(back) = self.lab.word(&half, &self.now) else {
            return self.says(how, "the operator refuses it".to_owned());
        };
        half.edit(*back);
        let before = self.lived.state();
        match half.rest() {
            Ok(came) if came.missed > 1 => {
                self.says(how, format!("{} members were away at once", came.missed))
            }
            Ok(_) => {}
            Err(why) => return self.says(how, why),
        }
        if let Some(why) = half.is_unwell() {
            self.says(how, format!("it rests, and {why}"));
        }
        let mut other = Walk {
            lab: &mut *self.lab,
            row: self.row,
            ephemeral: self.ephemeral,
            lived: half,
            now: self.now.clone(),
            wrong: Vec::new(),
        };
        other.is_like(how, "before", &before);
        self.wrong.extend(other.wrong);
    }

    fn came(&mut self, how: &str, expected: Rollout, came: &Came) {
        if came.rollout() != expected {
            self.says(
                how,
                format!("{expected:?} is expected, and there is {came}"),
            );
        }
        let most = if came.rollout() == Rollout::Nothing {
            0
        } else {
            1
        };
        if came.missed > most {
            self.says(how, format!("{} members were away at once", came.missed));
        }
        if let Some(why) = self.lived.is_unwell() {
            self.says(how, format!("it rests, and {why}"));
        }
        match self.lived.clone().rest() {
            Ok(again) if again.writes == 0 => {}
            Ok(again) => self.says(
                how,
                format!("it is written to although it is at rest: {again}"),
            ),
            Err(why) => self.says(how, why),
        }
    }

    fn is_like(&mut self, how: &str, what: &str, other: &str) {
        let own = self.lived.state();
        if own == other {
            return;
        }
        let differ: Vec<_> = own
            .lines()
            .filter(|line| !other.lines().any(|other| other == *line))
            .collect();
        let lacks: Vec<_> = other
            .lines()
            .filter(|line| !own.lines().any(|own| own == *line))
            .collect();
        self.says(
            how,
            format!("it is not as {what}: it has {differ:?}, and not {lacks:?}"),
        );
    }

    /// An edit that is refused with a reason, after which all is as before.
    fn is_refused(&mut self, how: &str, to: &Value) {
        let (answer, word) = (
            self.lab.answer(&self.lived, to),
            self.lab.word(&self.lived, to),
        );
        if let Answer::Malformed(why) | Answer::Refused(why) = &answer
            && (why.is_empty() || why.iter().any(String::is_empty))
        {
            self.says(how, "it is refused without a reason".to_owned());
        }
        match (answer, word) {
            // Nobody has more to say about the form of things.
            (Answer::Malformed(_), _) => {}
            (_, Word::Unreadable(why)) => {
                self.says(
                    how,
                    format!("it has the form that it must have, and cannot be read: {why}"),
                );
            }
            (Answer::Stored, Word::Accepted(_)) => self.says(how, "nobody refuses it".to_owned()),
            (Answer::Refused(why), Word::Accepted(resource)) => {
                let mut then = self.lived.clone();
                then.edit(*resource);
                let came = then.rest().map_or_else(|why| why, |came| came.to_string());
                self.says(
                    how,
                    format!(
                        "the schema refuses it ({why:?}), and Rust does not; it comes to: {came}"
                    ),
                );
            }
            (answer, Word::Refused(resource, why)) => {
                let former = self.lived.clone();
                self.gets_by(how, *resource, &why);
                // Else it would never have been stored.
                if !matches!(answer, Answer::Stored) {
                    self.lived = former;
                }
            }
        }
    }

    /// An edit that is refused by the operator, after it has got past an older schema.
    fn gets_by(&mut self, how: &str, resource: EtcdCluster, why: &str) {
        let (before, accepted) = (self.lived.state(), self.lived.kube.resource.clone());
        self.lived.edit(resource);
        match self.lived.rest() {
            Ok(came) => self.came(how, Rollout::Nothing, &came),
            Err(why) => {
                return self.says(how, format!("nothing is in force, and nobody heals: {why}"));
            }
        }
        self.is_like(how, "before", &before);
        let told = json!(self.lived.status()).to_string();
        let (field, why) = why.split_once(": ").unwrap_or_default();
        let told_why = json!(why).to_string();
        if why.is_empty() || !told.contains(field) || !told.contains(told_why.trim_matches('"')) {
            self.says(
                how,
                format!("people are not told that {field} is refused, {why:?}: {told}"),
            );
        }
        // And taken back.
        let mut then = self.lived.clone();
        then.edit(accepted);
        match then.rest() {
            Ok(came) if came.rollout() == Rollout::Nothing && then.state() == before => {}
            Ok(came) => self.says(how, format!("taken back, it comes to {came}")),
            Err(why) => self.says(how, format!("taken back: {why}")),
        }
    }

    /// A leaf that can be chosen, and is then kept.
    fn is_kept(&mut self, to: &Value) {
        if self.lab.schema.defaulted(to) == self.lab.schema.defaulted(&self.now) {
            return self.is_refused(
                "changed",
                &edited(&self.now.clone(), self.row.leaf, Some(&self.row.change)),
            );
        }
        self.is_refused("set", to);
        let Ok(chosen) = self.lab.fresh(to) else {
            // With data in the pods there is nothing to choose.
            if !self.ephemeral {
                self.says("set", "no cluster can be created with it".to_owned());
            }
            return;
        };
        let base = self.now.clone();
        let mut other = Walk {
            lab: &mut *self.lab,
            row: self.row,
            ephemeral: self.ephemeral,
            lived: chosen,
            now: to.clone(),
            wrong: Vec::new(),
        };
        other.is_refused(
            "changed",
            &edited(to, self.row.leaf, Some(&self.row.change)),
        );
        other.is_refused("left out", &base);
        self.wrong.extend(
            other
                .wrong
                .into_iter()
                .map(|wrong| format!("chosen, {wrong}")),
        );
    }
}
