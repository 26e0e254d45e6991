//! Whether the database user may do what a client that takes locks does.

use super::existing::Names;
use crate::finding::Finding;
use crate::store::{MissingPermission, Rights};

/// The findings about a user's rights; none if the database restricts it in nothing.
///
/// The database lists a user's own permissions, so nothing need be tried: a write that is refused
/// names one permission at a time, and one that is not refused stays.
pub(super) fn findings(names: &Names, rights: &Rights) -> Vec<Finding> {
    let subject = format!("rights of user {:?}", rights.role);
    let missing = |permission, table| {
        let grant =
            MissingPermission::on_table(&rights.role, permission, names.keyspace.as_str(), table);
        (!grant.is_within(&rights.permissions)).then(|| grant.to_string())
    };
    let (lock_table, lock_hosts) = (names.lock_table.as_str(), names.lock_hosts.as_str());
    let needed = [("SELECT", lock_table), ("MODIFY", lock_table), ("SELECT", lock_hosts)];
    let needed: Vec<_> =
        needed.into_iter().filter_map(|(permission, table)| missing(permission, table)).collect();
    let mut findings = Vec::new();
    if !needed.is_empty() {
        let found = "it may not do all that taking locks needs";
        findings.push(Finding::error(&subject, found, format!("run `{}`", needed.join(" "))));
    }
    if let Some(grant) = missing("MODIFY", lock_hosts) {
        let found = "it may not record that this host is in use, so `lock-hosts remove \
                     --inactive-for` would remove it; nor may clients add their host";
        findings.push(Finding::warning(&subject, found, format!("run `{grant}`")));
    }
    if findings.is_empty() {
        findings.push(Finding::ok(subject, "it may take locks"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Severity;

    fn told(permissions: &[(&str, &str)]) -> Vec<Finding> {
        let names = Names::check("k", "t").expect("these are names");
        let owned = |&(resource, permission): &(&str, &str)| {
            (String::from(resource), String::from(permission))
        };
        let permissions = permissions.iter().map(owned).collect();
        findings(&names, &Rights { role: "app".to_owned(), permissions })
    }

    #[test]
    fn missing_permissions_are_told_with_their_statements() {
        let all = [
            ("<table k.t>", "SELECT"),
            ("<table k.t>", "MODIFY"),
            ("<table k.lock_hosts>", "SELECT"),
            ("<table k.lock_hosts>", "MODIFY"),
        ];
        assert_eq!(told(&all)[0].severity, Severity::Ok);
        for (lacking, severity, statement) in [
            (0, Severity::Error, "GRANT SELECT ON TABLE \"k\".\"t\" TO \"app\";"),
            (1, Severity::Error, "GRANT MODIFY ON TABLE \"k\".\"t\" TO \"app\";"),
            (2, Severity::Error, "GRANT SELECT ON TABLE \"k\".\"lock_hosts\" TO \"app\";"),
            (3, Severity::Warning, "GRANT MODIFY ON TABLE \"k\".\"lock_hosts\" TO \"app\";"),
        ] {
            let mut permissions = all.to_vec();
            permissions.remove(lacking);
            let findings = told(&permissions);
            assert_eq!((findings.len(), findings[0].severity), (1, severity), "{findings:?}");
            assert_eq!(findings[0].advice, Some(format!("run `{statement}`")));
        }
        let severities: Vec<_> = told(&[]).iter().map(|finding| finding.severity).collect();
        assert_eq!(severities, [Severity::Error, Severity::Warning]);
    }
}
