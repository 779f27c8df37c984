//! Texts that several statuses share.

use evenkeel_runtime::Error;

/// Returns a number of bytes as a quantity for people: rounded up to a tenth of its binary unit, such as 25.3Mi.
pub(crate) fn size(bytes: u64) -> String {
    let units = [("Gi", 30_u32), ("Mi", 20), ("Ki", 10)];
    let Some((unit, shift)) = units.into_iter().find(|(_, shift)| bytes >> shift > 0) else {
        return bytes.to_string();
    };
    let tenths = (u128::from(bytes) * 10).div_ceil(1 << shift);
    match (tenths / 10, tenths % 10) {
        (whole, 0) => format!("{whole}{unit}"),
        (whole, tenth) => format!("{whole}.{tenth}{unit}"),
    }
}

/// Returns the reason and the message for a pod that Kubernetes does not let the operator create.
pub(crate) fn write_error(error: &Error) -> (&'static str, String) {
    let text = error.to_string();
    if text.contains("error looking up service account") {
        let message = format!(
            "The ServiceAccount of the store does not exist. Create it, or change \
             spec.s3.credentials.webIdentity.serviceAccount of the BackupStore: {text}"
        );
        return ("ServiceAccountNotFound", message);
    }
    let message = format!(
        "Kubernetes rejects the pod of the agent. Change the quota, policy or webhook that rejects it: {text}"
    );
    ("WriteRejected", message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_to_tenths() {
        for (bytes, text) in [
            (0, "0"),
            (1023, "1023"),
            (1024, "1Ki"),
            (25 << 20, "25Mi"),
            ((25 << 20) + 1, "25.1Mi"),
            (u64::from(u32::MAX) + 1, "4Gi"),
        ] {
            assert_eq!(size(bytes), text);
            let quantity = k8s_openapi::apimachinery::pkg::api::resource::Quantity(text.to_owned());
            assert!(evenkeel_api::quantity::bytes(&quantity).is_ok_and(|parsed| parsed >= bytes));
        }
    }

    #[test]
    fn a_missing_service_account_is_named() {
        let error = Error::other(
            "create Pod a",
            "pods \"a\" is forbidden: error looking up service account shop/backup: serviceaccount \"backup\" not found",
        );
        assert_eq!(write_error(&error).0, "ServiceAccountNotFound");
        assert_eq!(
            write_error(&Error::other("create Pod a", "exceeded quota")).0,
            "WriteRejected"
        );
    }
}
