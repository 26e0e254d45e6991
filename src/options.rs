//! Options that clients and requests share.

/// How many replicas have to answer.
///
/// Only levels whose quorums intersect exist here: with any other, two could hold one lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Consistency {
    /// More than half of all replicas, whatever their data centre.
    #[default]
    Quorum,
    /// More than half of the replicas of the named data centre. All clients of a lock table have to
    /// name the same one: clients of two data centres would not exclude each other.
    LocalQuorum(String),
}
