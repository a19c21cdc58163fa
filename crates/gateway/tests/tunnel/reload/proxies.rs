//! Proxy connections outliving changes by a reload.

use tokio::io::BufReader;

use super::*;
use crate::http::head;

/// Sends a request to an origin by way of a proxy, over a kept connection; returns the head of the answer.
async fn asks(client: &mut BufReader<TcpStream>, origin: SocketAddr) -> Vec<String> {
    let request = format!("GET http://{origin}/ HTTP/1.1\r\nHost: {origin}\r\n\r\n");
    client.get_mut().write_all(request.as_bytes()).await.unwrap();
    head(client).await
}

/// An origin answering each request with an empty body.
async fn answers_nothing() -> Origin {
    Origin::start(|stream| async move {
        let mut stream = BufReader::new(stream);
        while !head(&mut stream).await.is_empty() {
            stream.get_mut().write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kept_proxy_connection_follows_the_reloaded_link_and_rules() {
    within(async {
        let (first, second) = (answers_nothing().await, answers_nothing().await);
        let intercept = proxy("http", "on_peer_loss = \"direct\"");
        let mut site = Site::start(&intercept).await;
        let mut client = BufReader::new(site.connect(0).await);
        assert_eq!(asks(&mut client, first.address).await[0], "HTTP/1.1 200 OK");
        let mut reload = async |more: &str| {
            let text = branch_config(site.hub_key, site.tunnel, &format!("{intercept}{more}"));
            site.branch.reload(parse(site.dir.path(), &text)).await.unwrap();
            assert!(site.branch.wait_up("hub", LIMIT).await, "no link");
            let status = site.branch.status();
            (status.peers[0].flows_total, status.flows_not_coded.iter().map(|row| row.count).sum::<u64>())
        };
        reload("[link]\nresume_window = \"41 s\"\n").await;
        assert_eq!(asks(&mut client, second.address).await[0], "HTTP/1.1 200 OK");
        let direct = "[link]\nresume_window = \"41 s\"\n[[policy]]\npath = \"direct\"\n";
        assert_eq!(reload(direct).await, (1, 0), "over the link that began anew");
        assert_eq!(asks(&mut client, first.address).await[0], "HTTP/1.1 200 OK");
        assert_eq!(reload(direct).await, (1, 1), "as the rule says");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_proxy_ends_connections_behind_their_answer() {
    within(async {
        let (asked, answers) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let waits = (Arc::clone(&asked), Arc::clone(&answers));
        let origin = Origin::start(move |stream| {
            let (asked, answers) = (Arc::clone(&waits.0), Arc::clone(&waits.1));
            async move {
                let mut stream = BufReader::new(stream);
                while !head(&mut stream).await.is_empty() {
                    asked.notify_one();
                    answers.notified().await;
                    stream
                        .get_mut()
                        .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
                        .await
                        .unwrap();
                }
            }
        })
        .await;
        let mut site = Site::start(&proxy("http", "")).await;
        for changed in [proxy("http", "allow_from = [\"127.0.0.0/8\"]"), String::new()] {
            let mut busy = BufReader::new(site.connect(0).await);
            let mut idle = BufReader::new(site.connect(0).await);
            answers.notify_one();
            assert_eq!(asks(&mut idle, origin.address).await[0], "HTTP/1.1 200 OK");
            asked.notified().await;
            let (answer, ()) = tokio::join!(asks(&mut busy, origin.address), async {
                asked.notified().await;
                site.reload_branch(&changed).await.unwrap();
                assert_eq!(idle.read(&mut [0]).await.unwrap(), 0, "at its end");
                answers.notify_one();
            });
            // It has `Connection: close`, unless it was on its way by then.
            assert_eq!(answer[0], "HTTP/1.1 200 OK");
            assert_eq!(busy.read(&mut [0]).await.unwrap(), 0, "at its end");
        }
    })
    .await;
}
