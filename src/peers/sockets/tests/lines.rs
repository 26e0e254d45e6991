//! Who asks for a line, and what becomes of the question.

use tokio::time::Instant;

use super::super::queue_requests::{ASKED_MAX, REPEAT_AFTER};
use super::*;
use crate::admin::types::{HolderQueue, TurnUser};
use crate::peers::NotReached;

fn line() -> HolderQueue {
    let user = |client: u128| TurnUser::new(client, format!("host pid {client}"));
    HolderQueue {
        keeper: user(KEEPER),
        user: Some(user(5)),
        is_kept: false,
        waiting: 300,
        first: vec![user(6), user(7)],
    }
}

// Goal: a question is answered with the line, or with the news that there is none; all that ask at
// once get the answer.
// Method: ask twice at once; ask about another object.
#[tokio::test]
async fn question_is_answered() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let mut keeper = Party::keeper(&store, KEEPER, socket().await).await;
    let guest = Party::guest(&store, GUEST);
    let [used, unused] = ["a", "b"].map(|name| guest.sockets.key(name));
    let asking = async {
        let ask = |object| guest.sockets.who(KEEPER, object);
        tokio::join!(ask(used), ask(used), ask(unused))
    };
    let answering = async {
        while let Some(received) = keeper.received.recv().await {
            if let Received::Who { guest, object } = received {
                keeper.sockets.tell(guest, object, (object == used).then(line));
            }
        }
    };
    // Those that find the connection in the making ask again when it is there.
    let asks_again = async {
        until("a connection", async || guest.sockets.is_connected(KEEPER)).await;
        later(REPEAT_AFTER).await;
        std::future::pending::<()>().await;
    };
    let told = async {
        tokio::select! {
            told = asking => told,
            () = answering => panic!("the guest asks"),
            () = asks_again => unreachable!("it waits for the others"),
        }
    };
    let (one, other, none) = within_limit("an answer", told).await;
    for told in [one, other] {
        assert_eq!(told.expect("the keeper answers"), Some(line()));
    }
    assert_eq!(none.expect("the keeper answers"), None);
}

// Goal: a question that gets no answer, or can't be asked, ends once it was asked four times.
// Method: ask a keeper that says nothing, and a client that listens nowhere.
#[tokio::test]
async fn question_without_an_answer_ends() {
    let (_still, store) = (still_time(), FaultyStore::new());
    let keeper = Party::keeper(&store, KEEPER, socket().await).await;
    let guest = Party::guest(&store, GUEST);
    assert!(guest.reaches(KEEPER).await);
    for client in [keeper.client, 9] {
        let asked = Instant::now();
        let asking = tokio::spawn(guest.sockets.who(client, guest.sockets.key("a")));
        let is_over = async || {
            later(REPEAT_AFTER / 10).await;
            asking.is_finished()
        };
        until("an end", is_over).await;
        assert!(asked.elapsed() >= REPEAT_AFTER * ASKED_MAX, "{:?}", asked.elapsed());
        let told = asking.await.expect("it does not panic");
        assert!(matches!(told, Err(NotReached)), "{told:?}");
    }
}
