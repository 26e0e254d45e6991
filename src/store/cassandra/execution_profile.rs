//! How our statements are executed, whatever the user's session does by default.

use std::sync::Arc;
use std::time::Duration;

use scylla::client::execution_profile::ExecutionProfileHandle;
use scylla::client::session::Session;
use scylla::policies::load_balancing::DefaultPolicy;
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{self, SerialConsistency};

use crate::options::Consistency;

/// How long one try of a request may take. The protocol retries, with the same stamp.
pub(super) const TRY_TIMEOUT: Duration = Duration::from_secs(1);

/// The terms on which statements of one table are executed.
#[derive(Clone, Debug)]
pub(super) struct Terms {
    pub(super) consistency: statement::Consistency,
    /// For a hint: one replica is enough, of the same data centres.
    pub(super) one_replica: statement::Consistency,
    pub(super) serial_consistency: SerialConsistency,
    pub(super) profile: ExecutionProfileHandle,
}

impl Terms {
    /// The session's own profile, with every setting that correctness depends on overridden.
    ///
    /// The driver never retries and never executes speculatively: after either, the reported error
    /// may be that of another attempt than the one that was applied.
    pub(super) fn new(session: &Session, consistency: &Consistency) -> Self {
        use statement::Consistency as Level;
        let profile = session
            .get_default_execution_profile_handle()
            .pointee_to_builder()
            .request_timeout(Some(TRY_TIMEOUT))
            .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
            .speculative_execution_policy(None);
        let (levels, profile) = match consistency {
            Consistency::Quorum => {
                ((Level::Quorum, SerialConsistency::Serial, Level::One), profile)
            }
            // A coordinator in another data centre would use the quorum of its own data centre.
            Consistency::LocalQuorum(datacenter) => {
                let policy = DefaultPolicy::builder()
                    .prefer_datacenter(datacenter.clone())
                    .token_aware(true)
                    .permit_dc_failover(false)
                    .build();
                let levels = (Level::LocalQuorum, SerialConsistency::LocalSerial, Level::LocalOne);
                (levels, profile.load_balancing_policy(policy))
            }
        };
        let (consistency, serial_consistency, one_replica) = levels;
        let profile = profile
            .consistency(consistency)
            .serial_consistency(Some(serial_consistency))
            .build()
            .into_handle_with_label("bakery-lock".to_owned());
        Terms { consistency, one_replica, serial_consistency, profile }
    }

    /// Applies these terms to a statement. All our statements may be repeated: writes carry their
    /// timestamp.
    pub(super) fn apply(&self, mut statement: PreparedStatement) -> PreparedStatement {
        statement.set_execution_profile_handle(Some(self.profile.clone()));
        statement.set_consistency(self.consistency);
        statement.set_serial_consistency(Some(self.serial_consistency));
        statement.set_request_timeout(Some(TRY_TIMEOUT));
        statement.set_is_idempotent(true);
        statement
    }
}
