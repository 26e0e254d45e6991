//! The table of peers: created beside the others, and not needed for locks.

use bakery_lock::schema::{
    self, CreateOptions, Created, Finding, LOCK_TABLE_DEFAULT, SchemaError, Severity,
};
use bakery_lock::{BuildError, Consistency};

use support::scene::{Scene, refusal};

// Goal: clients of a keyspace that an earlier version made lock as before; a check warns, with a
// statement that creates the table, and so does `create`, which changes nothing else.
// Method: drop the table, and create it again in both ways.
#[tokio::test]
async fn keyspace_of_an_earlier_version_is_completed() {
    let _beside = support::beside_others().await;
    let scene = Scene::of_its_own("no_peers").await;
    let fine = finding(&scene).await;
    assert_eq!((fine.severity, fine.found.as_str()), (Severity::Ok, "as it should be"), "{fine}");

    drop_table(&scene).await;
    let guard = scene.client().await.lock("object").await.expect("the lock is free");
    guard.unlock().await.expect("the lock was held");
    let warning = finding(&scene).await;
    assert_eq!(warning.severity, Severity::Warning, "{warning}");
    assert_eq!(warning.found, "does not exist, as an earlier version made the keyspace");
    let advice = warning.advice.expect("what is missing has an advice");
    assert!(
        advice.starts_with("run `lock-hosts init`, which adds it, or CREATE TABLE"),
        "{advice}"
    );
    let (_, statement) = advice.split_once(", or ").expect("it has a statement");
    let (statement, _) = statement.split_once("; ").expect("it says what comes next");
    scene.change_schema(statement).await;
    assert_eq!(finding(&scene).await, fine);

    drop_table(&scene).await;
    let created = scene.create(&CreateOptions::new()).await.expect("only this table is missing");
    assert_eq!(created.tables, ["lock_peers"]);
    assert!(!created.keyspace && !created.settings && created.columns.is_empty(), "{created:?}");
    assert_eq!(finding(&scene).await, fine);
    assert_eq!(
        scene.create(&CreateOptions::new()).await.expect("nothing is missing"),
        Created::default()
    );
    scene.drop_keyspace().await;
}

// Goal: another table of this name is an error, for checks and for clients, and stays as it is.
// Method: drop a column.
#[tokio::test]
async fn table_with_other_columns_is_refused() {
    let _beside = support::beside_others().await;
    let scene = Scene::of_its_own("other_peers").await;
    scene.change_schema(&format!("ALTER TABLE {} DROP public_key", table(&scene))).await;
    let error = finding(&scene).await;
    assert_eq!(error.severity, Severity::Error, "{error}");
    let told = "lock_peers: column public_key is missing; it must be a regular blob column: ";
    assert!(error.to_string().starts_with(told), "{error}");
    let refused = scene.create(&CreateOptions::new()).await.expect_err("it is another table");
    assert!(matches!(refused, SchemaError::Differs { .. }), "{refused:?}");
    assert!(refused.to_string().contains(told), "{refused}");
    let refused = refusal(scene.builder()).await;
    assert!(matches!(refused, BuildError::Schema(SchemaError::Unfit { .. })), "{refused:?}");
    scene.drop_keyspace().await;
}

// Goal: no option of this table keeps clients from their locks.
// Method: set it to keep rows for ever, and tombstones not at all.
#[tokio::test]
async fn table_with_other_options_is_a_warning() {
    let _beside = support::beside_others().await;
    let scene = Scene::of_its_own("kept_peers").await;
    let options = "default_time_to_live = 0 AND gc_grace_seconds = 0";
    scene.change_schema(&format!("ALTER TABLE {} WITH {options}", table(&scene))).await;
    let found = findings(&scene).await;
    assert_eq!(found.len(), 2, "{found:?}");
    for finding in &found {
        assert_eq!(finding.severity, Severity::Warning, "{finding}");
        let advice = finding.advice.as_deref().expect("what is wrong has an advice");
        let remedy = advice.strip_prefix("run ").expect("the advice is a statement");
        scene.change_schema(remedy).await;
    }
    scene.client().await;
    assert_eq!(finding(&scene).await.severity, Severity::Ok);
    scene.drop_keyspace().await;
}

fn table(scene: &Scene) -> String {
    format!("\"{}\".lock_peers", scene.keyspace)
}

async fn drop_table(scene: &Scene) {
    scene.change_schema(&format!("DROP TABLE {}", table(scene))).await;
}

/// The one finding about the table.
async fn finding(scene: &Scene) -> Finding {
    let mut found = findings(scene).await;
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// The findings about the table.
async fn findings(scene: &Scene) -> Vec<Finding> {
    let consistency = Consistency::Quorum;
    let report =
        schema::check(&scene.session, &scene.keyspace, LOCK_TABLE_DEFAULT, &consistency).await;
    let findings = report.expect("the cluster answers").findings;
    findings.into_iter().filter(|finding| finding.subject == "lock_peers").collect()
}
