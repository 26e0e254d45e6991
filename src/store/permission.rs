//! A permission that the database user lacks, as the statement that grants it.

use std::fmt;

/// A permission that the database user lacks. Displayed as the statement that grants it:
/// `GRANT SELECT ON TABLE "bakery_lock"."lock_table" TO "app";`.
///
/// [`DatabaseError::missing_permission`](super::DatabaseError::missing_permission) says which one a
/// request needed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MissingPermission {
    role: String,
    permission: String,
    resource: Resource,
}

/// What a permission is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Resource {
    AllKeyspaces,
    Keyspace(String),
    Table { keyspace: String, table: String },
}

impl MissingPermission {
    /// A permission on a table.
    pub(crate) fn on_table(role: &str, permission: &str, keyspace: &str, table: &str) -> Self {
        let resource = Resource::Table { keyspace: keyspace.to_owned(), table: table.to_owned() };
        MissingPermission { role: role.to_owned(), permission: permission.to_owned(), resource }
    }

    /// What the database says when it denies a request, in Cassandra as in ScyllaDB:
    /// `User app has no SELECT permission on <table bakery_lock.lock_table> or any of its parents`.
    /// `None` if it says something else.
    pub(super) fn parse(denial: &str) -> Option<Self> {
        let (who, rest) = denial.split_once(" permission on <")?;
        let (role, permission) = who.strip_prefix("User ")?.rsplit_once(" has no ")?;
        let (resource, _) = rest.split_once('>')?;
        let resource = Resource::parse(resource)?;
        Some(MissingPermission {
            role: role.to_owned(),
            permission: permission.to_owned(),
            resource,
        })
    }

    /// The role that the client logged in as.
    #[must_use]
    pub fn role(&self) -> &str {
        &self.role
    }

    /// Whether one of these permissions, each with what it is for, includes this one. What it is
    /// for is written as the database lists it: `<table bakery_lock.lock_table>`.
    pub(crate) fn is_within(&self, permissions: &[(String, String)]) -> bool {
        permissions.iter().any(|(resource, permission)| {
            let resource = resource.strip_prefix('<').and_then(|text| text.strip_suffix('>'));
            *permission == self.permission
                && resource
                    .and_then(Resource::parse)
                    .is_some_and(|granted| granted.includes(&self.resource))
        })
    }
}

impl Resource {
    fn parse(text: &str) -> Option<Self> {
        if text == "all keyspaces" {
            return Some(Resource::AllKeyspaces);
        }
        if let Some(keyspace) = text.strip_prefix("keyspace ") {
            return Some(Resource::Keyspace(keyspace.to_owned()));
        }
        // Names of keyspaces and tables have no dots.
        let (keyspace, table) = text.strip_prefix("table ")?.split_once('.')?;
        Some(Resource::Table { keyspace: keyspace.to_owned(), table: table.to_owned() })
    }

    fn includes(&self, other: &Self) -> bool {
        let keyspace = match other {
            Resource::AllKeyspaces => None,
            Resource::Keyspace(keyspace) | Resource::Table { keyspace, .. } => Some(keyspace),
        };
        match self {
            Resource::AllKeyspaces => true,
            Resource::Keyspace(name) => Some(name) == keyspace,
            Resource::Table { .. } => self == other,
        }
    }
}

impl fmt::Display for MissingPermission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let MissingPermission { role, permission, resource } = self;
        write!(f, "GRANT {permission} ON {resource} TO {};", quoted(role))
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::AllKeyspaces => f.write_str("ALL KEYSPACES"),
            Resource::Keyspace(keyspace) => write!(f, "KEYSPACE {}", quoted(keyspace)),
            Resource::Table { keyspace, table } => {
                write!(f, "TABLE {}.{}", quoted(keyspace), quoted(table))
            }
        }
    }
}

/// A name as CQL takes it, whatever its characters.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statement(denial: &str) -> Option<String> {
        MissingPermission::parse(denial).map(|grant| grant.to_string())
    }

    #[test]
    fn denial_names_the_statement_that_grants_it() {
        for (denial, expected) in [
            (
                "User app has no SELECT permission on <table k.lock_hosts> or any of its parents",
                "GRANT SELECT ON TABLE \"k\".\"lock_hosts\" TO \"app\";",
            ),
            (
                "User a has no \"b\" has no MODIFY permission on <table K.t> or any of its parents",
                "GRANT MODIFY ON TABLE \"K\".\"t\" TO \"a has no \"\"b\"\"\";",
            ),
            (
                "User app has no CREATE permission on <keyspace k> or any of its parents",
                "GRANT CREATE ON KEYSPACE \"k\" TO \"app\";",
            ),
            (
                "User app has no CREATE permission on <all keyspaces> or any of its parents",
                "GRANT CREATE ON ALL KEYSPACES TO \"app\";",
            ),
        ] {
            assert_eq!(statement(denial).as_deref(), Some(expected));
        }
    }

    #[test]
    fn other_answers_name_none() {
        for said in [
            "You have to be logged in and not anonymous to perform this request",
            "User app has no SELECT permission on <role boss> or any of its parents",
            "User app has no SELECT permission on <table k> or any of its parents",
            "unconfigured table lock_table",
        ] {
            assert_eq!(statement(said), None, "{said}");
        }
    }

    #[test]
    fn permission_on_a_parent_counts() {
        let grant = MissingPermission::on_table("app", "SELECT", "k", "t");
        for (resource, permission, counts) in [
            ("<table k.t>", "SELECT", true),
            ("<keyspace k>", "SELECT", true),
            ("<all keyspaces>", "SELECT", true),
            ("<table k.t>", "MODIFY", false),
            ("<table k.u>", "SELECT", false),
            ("<table l.t>", "SELECT", false),
            ("<keyspace l>", "SELECT", false),
            ("<all roles>", "SELECT", false),
        ] {
            let permissions = [(resource.to_owned(), permission.to_owned())];
            assert_eq!(grant.is_within(&permissions), counts, "{permission} on {resource}");
        }
    }
}
