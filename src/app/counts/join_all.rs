//! Waits for several futures at once.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

/// A future that may go to another thread.
pub(super) type SendFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What each of them comes to, in their order. Each wake asks all that are left, because answers of Redis come many at
/// a time: a thousand futures are asked a few dozen times.
pub(super) async fn all<T>(futures: Vec<SendFuture<'_, T>>) -> Vec<T> {
    let mut left: Vec<_> = futures.into_iter().map(|future| (Some(future), None)).collect();
    poll_fn(|cx| {
        let mut is_ready = true;
        for (future, value) in &mut left {
            if let Some(waiting) = future {
                match waiting.as_mut().poll(cx) {
                    Poll::Ready(ready) => (*future, *value) = (None, Some(ready)),
                    Poll::Pending => is_ready = false,
                }
            }
        }
        if is_ready { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    left.into_iter().filter_map(|(_, value)| value).collect()
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn values_come_in_the_order_of_their_futures() {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel::<usize>()).unzip();
        let futures = receivers.into_iter().map(|it| Box::pin(async { it.await.ok() }) as SendFuture<'_, _>);
        let sent = async {
            for (number, sender) in senders.into_iter().enumerate().rev() {
                tokio::task::yield_now().await;
                let _ = sender.send(number);
            }
        };
        let (values, ()) = tokio::join!(all(futures.collect()), sent);
        assert_eq!(values, [Some(0_usize), Some(1), Some(2)]);
        assert!(all::<u8>(Vec::new()).await.is_empty());
    }
}
