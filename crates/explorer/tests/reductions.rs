//! What makes the search small loses nothing: beside it runs a plain one, which keeps every world as it is, under its own
//! names, with its budget, and with writes that can no longer change anything.

use std::collections::HashSet;

use evenkeel_etcd::facts::StorageKind;
use evenkeel_explorer::bugs::BUGS;
use evenkeel_explorer::canonical::canonical;
use evenkeel_explorer::collapse::Parts;
use evenkeel_explorer::event::Event;
use evenkeel_explorer::explore::explore;
use evenkeel_explorer::rest::Patience;
use evenkeel_explorer::world::{Budget, World};
use evenkeel_explorer::{Decider, Real};

/// Visits every world, layer by layer, until `look` has seen enough.
fn plainly(start: &World, decider: &dyn Decider, mut look: impl FnMut(&World, &[Event]) -> bool) {
    let mut seen = HashSet::from([start.clone()]);
    let mut layer = vec![start.clone()];
    while !layer.is_empty() {
        let mut next = Vec::new();
        for world in layer {
            let events = Event::all(&world, decider);
            if look(&world, &events) {
                return;
            }
            for event in events {
                let mut after = world.clone();
                if event.happen(&mut after, decider).is_ok() && seen.insert(after.clone()) {
                    next.push(after);
                }
            }
        }
        layer = next;
    }
}

/// The form that a world has for the search, whatever may still go wrong in it.
fn form(world: &World) -> World {
    let mut form = canonical(world);
    form.budget = Budget::NOTHING;
    form
}

const SMALL: [(u8, Budget); 4] = [
    (
        1,
        Budget {
            faults: 1,
            crashes: 1,
            edits: 0,
            delays: 0,
        },
    ),
    (
        1,
        Budget {
            faults: 0,
            crashes: 1,
            edits: 1,
            delays: 0,
        },
    ),
    (
        3,
        Budget {
            faults: 1,
            crashes: 0,
            edits: 0,
            delays: 0,
        },
    ),
    (
        3,
        Budget {
            faults: 0,
            crashes: 1,
            edits: 0,
            delays: 0,
        },
    ),
];

#[test]
fn a_plain_search_reaches_the_same_worlds() {
    for (members, budget) in SMALL {
        let persistent = World::new(members, StorageKind::Persistent, 2, budget);
        let ephemeral = World::new(members, StorageKind::Ephemeral, 2, budget);
        for start in [persistent.clone(), persistent.owned(), ephemeral] {
            let (mut forms, mut states) = (HashSet::new(), 0);
            plainly(&start, &Real, |world, _| {
                states += 1;
                forms.insert(form(world));
                false
            });
            let report = explore(&start, &Real);
            println!(
                "{members} members, {:?}, {budget:?}: {} worlds for {states} states",
                start.storage, report.worlds
            );
            assert_eq!(report.worlds, forms.len());
        }
    }
}

#[test]
fn names_do_not_matter_to_what_can_happen() {
    for (members, budget) in SMALL {
        let start = World::new(members, StorageKind::Persistent, 2, budget);
        plainly(&start, &Real, |world, events| {
            let after = |world: &World, event: &Event| {
                let mut after = world.clone();
                event
                    .happen(&mut after, &Real)
                    .map(|()| canonical(&after))
                    .map_err(|violation| violation.0)
            };
            // A write that can no longer change anything is not in the form, and changes nothing.
            let nothing = Ok(canonical(world));
            let named = canonical(world);
            let renamed: HashSet<_> = Event::all(&named, &Real)
                .iter()
                .map(|event| after(&named, event))
                .collect();
            for event in events {
                let end = after(world, event);
                let idle = matches!(
                    event,
                    Event::Write(_) | Event::LateWrite(_) | Event::Crash | Event::Freeze
                );
                let idle = idle && end.as_ref().is_ok_and(|end| form(end) == form(world));
                assert!(idle || end == nothing || renamed.contains(&end), "{event}");
            }
            false
        });
    }
}

#[test]
fn a_plain_search_finds_the_deliberate_bugs_too() {
    // Those that the small search finds soon: the plain one takes far longer.
    for bug in BUGS
        .into_iter()
        .filter(|bug| explore(&bug.world(), bug).states < 3_000)
    {
        let start = bug.world();
        let parts = Parts::new(&start);
        let mut patience = Patience::default();
        let mut harm = None;
        plainly(&start, &bug, |world, events| {
            let broken = events
                .iter()
                .find_map(|event| event.happen(&mut world.clone(), &bug).err());
            harm = broken.or_else(|| restless(world, &bug, &parts, &mut patience));
            harm.is_some()
        });
        println!("{}: {:?}", bug.name, harm);
        assert!(harm.is_some(), "{} does no harm", bug.name);
    }
}

/// Runs a world on until nothing happens, and past anybody's patience.
fn restless(
    world: &World,
    decider: &dyn Decider,
    parts: &Parts,
    patience: &mut Patience,
) -> Option<evenkeel_explorer::world::Violation> {
    let mut world = world.clone();
    for _ in 0..400 {
        match Event::by_itself(&world, decider).into_iter().next() {
            Some(event) => {
                if let Err(violation) = event.happen(&mut world, decider) {
                    return Some(violation);
                }
            }
            None => {
                return patience
                    .ends_well(&world, decider, parts)
                    .err()
                    .map(|(_, violation)| violation);
            }
        }
    }
    Some(evenkeel_explorer::rest::never_rests())
}
