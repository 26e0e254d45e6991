//! What a lock is for: several processes change one thing, and no change is lost.

use std::fs;
use std::path::{Path, PathBuf};

use tokio::task::JoinSet;

use super::scene::{self, Scene};
use support::history::{Moment, overlap};
use support::monotonic::now;
use support::program::{self, Program};

const PROCESSES: usize = 4;
const TASKS: usize = 4;
const INCREMENTS: usize = 800;

// Goal: four processes with four tasks each increment a number 800 times in all, with a plain read
// and a plain write, each time under the lock. No increment is lost, and no two tasks hold at the
// same time, although one server is killed meanwhile.
// Method: start `counting_program` four times; the number is in a file.
#[tokio::test]
async fn four_processes_lose_no_increment() {
    let mut scene = Scene::new().await;
    let name = support::unique("counter");
    let file = std::env::temp_dir().join(name.replace(':', "_"));
    fs::write(&file, "0").expect("the file can be written");
    let urls = scene.servers.urls().join(",");
    let order = format!("{urls} {name} {} {}", file.display(), INCREMENTS / PROCESSES);
    let mut programs: Vec<_> =
        (0..PROCESSES).map(|_| Program::start("counter::counting_program", &order, &[])).collect();
    for program in &mut programs {
        program.expect("ready").await;
    }
    for program in &mut programs {
        program.go_on().await;
    }
    scene.servers.kill(1);
    let mut moments = Vec::new();
    for program in programs {
        let said = program.finish().await;
        let said = said.iter().map(|line| line.parse::<Moment>().expect("programs tell moments"));
        moments.extend(said);
    }
    assert_eq!(read(&file), INCREMENTS);
    assert_eq!(moments.len(), INCREMENTS);
    assert_eq!(overlap(&moments), None, "two tasks held the lock");
    let began = moments.iter().map(Moment::first).min().expect("something happened");
    let ended = moments.iter().map(Moment::last).max().expect("something happened");
    let rate = INCREMENTS as f64 * 1e9 / (ended - began) as f64;
    println!(
        "{INCREMENTS} increments by {PROCESSES} processes x {TASKS} tasks: {rate:.0} a second"
    );
    fs::remove_file(&file).expect("it is there");
}

// Goal: the program that the test above starts. By itself: a single process loses no increment.
// Method: tasks share a number of increments; each notes when it held the lock.
#[tokio::test]
async fn counting_program() {
    let Some(order) = program::order() else {
        let scene = Scene::new().await;
        let name = support::unique("counter");
        let file = std::env::temp_dir().join(name.replace(':', "_"));
        fs::write(&file, "0").expect("the file can be written");
        let held = increment(&scene.masters, &name, &file, 40).await;
        assert_eq!((read(&file), held.len()), (40, 40));
        fs::remove_file(&file).expect("it is there");
        return;
    };
    let words: Vec<_> = order.split(' ').collect();
    let [urls, name, file, increments] = words[..] else {
        panic!("not an order: {order}");
    };
    let urls: Vec<_> = urls.split(',').map(str::to_owned).collect();
    let masters = scene::connect(&urls).await;
    program::say("ready");
    program::wait_for_word();
    let increments = increments.parse().expect("an order ends with a number");
    for moment in increment(&masters, name, Path::new(file), increments).await {
        program::say(&moment.to_string());
    }
}

async fn increment(
    masters: &bakery_lock::Masters,
    name: &str,
    file: &Path,
    increments: usize,
) -> Vec<Moment> {
    let client = scene::built(scene::builder(masters)).await;
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let (client, name, file) = (client.clone(), name.to_owned(), PathBuf::from(file));
        tasks.spawn(async move {
            let mut held = Vec::new();
            for _ in 0..increments / TASKS {
                let guard = client.lock(&name).await.expect("each task gets the lock");
                let from = now();
                let value = read(&file);
                tokio::task::yield_now().await;
                fs::write(&file, (value + 1).to_string()).expect("the file can be written");
                held.push(Moment::Held { from, until: now() });
                guard.unlock().await.expect("the lock was held");
            }
            held
        });
    }
    let held = tasks.join_all().await.into_iter().flatten().collect();
    client.shutdown().await.expect("a majority answers");
    held
}

fn read(file: &Path) -> usize {
    let text = fs::read_to_string(file).expect("the file is there");
    text.parse().expect("it holds a number")
}
