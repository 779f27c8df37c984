use super::*;

struct Scene {
    _dir: tempfile::TempDir,
    task: InstallTask,
}

/// Returns a volume with restored data, an empty target and leftovers.
fn scene() -> Scene {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap();
    let task = InstallTask {
        from: root.join("restored"),
        to: root.join("data"),
        remove: vec![root.join("snapshot.db"), root.join("work")],
    };
    restore(&task);
    Scene { _dir: dir, task }
}

fn restore(task: &InstallTask) {
    fs::create_dir_all(task.from.join("member/snap")).unwrap();
    fs::write(task.from.join("member/snap/db"), "data").unwrap();
    fs::write(&task.remove[0], "snapshot").unwrap();
    fs::create_dir_all(&task.remove[1]).unwrap();
    fs::write(task.remove[1].join("file"), "temporary").unwrap();
}

fn assert_installed(task: &InstallTask) {
    let db = fs::read_to_string(task.to.join("member/snap/db")).unwrap();
    assert_eq!(db, "data");
    assert!(!task.from.exists());
    assert!(task.remove.iter().all(|path| !path.exists()));
}

const STEPS: [InstallStep; 6] = [
    InstallStep::Synced,
    InstallStep::Marked,
    InstallStep::Cleared,
    InstallStep::Renamed,
    InstallStep::RenameSynced,
    InstallStep::Removed,
];

fn interrupt_after(task: &InstallTask, step: InstallStep) {
    let mut after = |done| {
        if done == step {
            Err(io::Error::other("interrupted"))
        } else {
            Ok(())
        }
    };
    install_in_steps(task, &mut after).unwrap_err();
}

#[test]
fn restored_data_is_moved_and_leftovers_are_deleted() {
    for has_target in [false, true] {
        let scene = scene();
        if has_target {
            fs::create_dir(&scene.task.to).unwrap();
        }
        install(&scene.task).unwrap();
        assert_installed(&scene.task);
        install(&scene.task).unwrap();
        assert_installed(&scene.task);
    }
}

#[test]
fn an_interrupted_installation_is_finished_by_the_next() {
    for first in STEPS {
        for second in STEPS {
            let scene = scene();
            interrupt_after(&scene.task, first);
            if STEPS[4..].contains(&second) {
                interrupt_after(&scene.task, second);
            }
            install(&scene.task).unwrap();
            assert_installed(&scene.task);
        }
    }
}

#[test]
fn a_restore_that_runs_again_does_not_replace_installed_data() {
    for step in STEPS {
        let scene = scene();
        interrupt_after(&scene.task, step);
        // A new pod restores again, whatever the first one has done.
        restore(&scene.task);
        install(&scene.task).unwrap();
        assert_installed(&scene.task);
    }
}

#[test]
fn data_that_is_not_from_a_restore_is_never_replaced() {
    let scene = scene();
    fs::create_dir(&scene.task.to).unwrap();
    fs::write(scene.task.to.join("precious"), "data").unwrap();
    install(&scene.task).unwrap_err();
    assert!(scene.task.to.join("precious").exists());
    assert!(scene.task.from.exists());
    assert!(scene.task.remove[0].exists());
}

#[test]
fn missing_restored_data_is_an_error() {
    let scene = scene();
    fs::remove_dir_all(&scene.task.from).unwrap();
    install(&scene.task).unwrap_err();
    fs::create_dir(&scene.task.from).unwrap();
    install(&scene.task).unwrap_err();
    assert!(!scene.task.to.exists());
}

#[test]
fn paths_that_could_delete_data_are_rejected() {
    let scene = scene();
    let InstallTask { from, to, remove } = &scene.task;
    let root = to.parent().unwrap().to_owned();
    let task = |from: &Path, to: &Path, remove: &[PathBuf]| InstallTask {
        from: from.to_owned(),
        to: to.to_owned(),
        remove: remove.to_vec(),
    };
    for invalid in [
        task(from, to, std::slice::from_ref(to)),
        task(from, to, &[to.join("member")]),
        task(from, to, std::slice::from_ref(&root)),
        task(from, to, std::slice::from_ref(from)),
        task(from, to, &[root.join("work/../data")]),
        task(from, &from.join("data"), remove),
        task(&to.join("restored"), to, remove),
        task(Path::new("restored"), to, remove),
        task(from, Path::new("/"), remove),
    ] {
        let failure = install(&invalid).unwrap_err();
        assert_eq!(failure.reason, FailureReason::InvalidRequest, "{invalid:?}");
    }
    assert!(from.exists());
}

#[test]
fn a_link_in_restored_data_is_rejected() {
    let scene = scene();
    std::os::unix::fs::symlink("/etc", scene.task.from.join("link")).unwrap();
    install(&scene.task).unwrap_err();
    assert!(!scene.task.to.exists());
}
