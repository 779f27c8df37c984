//! The pod that fills the volume of a seed: the agent downloads the backup, `etcdutl` of the version that will run writes a
//! data directory under a temporary name, and the agent renames it to the directory that the seed reads.

use evenkeel_api::labels;
use evenkeel_kit::MemberRef;
use evenkeel_kit::objects::annotation;
use kube::api::ObjectMeta;

use crate::names::{Epoch, Lineage, Serial};

/// The init container that downloads the backup.
pub const FETCH: &str = "fetch";
/// The init container that writes the data directory.
pub const RESTORE: &str = "restore";
/// The container that renames the data directory.
pub const INSTALL: &str = "install";

/// Returns the value of the annotation that names the member whose volume a pod fills. Restore pods do not have the
/// annotations of members: they are none.
fn member_annotation(member: MemberRef) -> String {
    let MemberRef {
        lineage,
        epoch,
        serial,
    } = member;
    format!("{:08x}/{}/{}", lineage.0, epoch.0, serial.0)
}

/// Returns the member whose volume a pod fills; `None` if the annotation is missing or malformed.
pub fn member_of(metadata: &ObjectMeta) -> Option<MemberRef> {
    let text = annotation(metadata, labels::RESTORE_MEMBER)?;
    let mut parts = text.split('/');
    let lineage = u32::from_str_radix(parts.next()?, 16).ok()?;
    let epoch = parts.next()?.parse().ok()?;
    let serial = parts.next()?.parse().ok()?;
    Some(MemberRef {
        lineage: Lineage(lineage),
        epoch: Epoch(epoch),
        serial: Serial(serial),
    })
}
