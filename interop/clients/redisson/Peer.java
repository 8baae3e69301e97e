// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RBucket;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RScript;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * A program with Redisson's locks, for tests. What it is told, and what it answers, is in ../../peers/internal/lines/lines.go. Its
 * kinds: lock, fair, fenced, spin, read, write; multi is an RMultiLock of the plain locks KEY,KEY,...; red is a RedissonRedLock of one
 * plain lock of each deployment. Only this one has the kinds semaphore, permit and latch, and for them the verbs "set KIND KEY N",
 * "acquire KIND KEY WAIT" and "give KIND KEY ID".
 */
public class Peer {
    static final List<RedissonClient> clients = new ArrayList<>();
    static final Map<String, ExecutorService> threads = new ConcurrentHashMap<>();
    static final Map<String, RLock> multi = new ConcurrentHashMap<>(); // a multi lock has to be unlocked as the object that it was

    public static void main(String[] args) throws Exception {
        for (int i = 1; i < args.length; i++) {
            Config config = new Config();
            config.setLockWatchdogTimeout(Long.parseLong(args[0]));
            if (args[i].startsWith("cluster:")) {
                for (String node : args[i].substring("cluster:".length()).split(",")) {
                    config.useClusterServers().addNodeAddress("redis://" + node);
                }
            } else {
                config.useSingleServer().setAddress("redis://" + args[i]);
            }
            clients.add(Redisson.create(config));
        }
        say("- ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] order = line.split(" ");
            threads.computeIfAbsent(order[0], t -> Executors.newSingleThreadExecutor()).submit(() -> {
                String answer;
                try {
                    answer = carryOut(order);
                } catch (Throwable e) {
                    answer = "failed: " + e.toString().replace('\n', ' ');
                }
                say(order[0] + " " + answer);
            });
        }
        Runtime.getRuntime().halt(0); // what is held stays held, as when a program crashes
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static long now() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }

    static String carryOut(String[] o) throws Exception {
        String kind = o[2];
        String key = o[3];
        switch (o[1]) {
            case "set":
                return set(kind, key, Integer.parseInt(o[4])) ? "set" : "kept";
            case "acquire":
                String id = acquire(kind, key, Long.parseLong(o[4]));
                return id == null ? "timeout" : "acquired " + now() + " " + id;
            case "give":
                long since = now();
                return give(kind, key, o[4]) ? "given " + since : "lost";
            default:
        }
        RLock lock = lock(kind, key);
        switch (o[1]) {
            case "lock":
                long fence = take(lock, kind, Long.parseLong(o[4]), o.length > 5 ? Long.parseLong(o[5]) : -1);
                return fence < 0 ? "timeout" : "locked " + now() + " " + fence;
            case "unlock":
                long at = now();
                return release(lock) ? "unlocked " + at : "lost";
            case "held":
                try {
                    return lock.isHeldByCurrentThread() ? "held" : "lost";
                } catch (UnsupportedOperationException e) {
                    return "unknown";
                }
            case "count":
                return "counted " + count(lock, kind, Integer.parseInt(o[4]), Long.parseLong(o[5]), o[6]);
            case "write":
                for (int i = Integer.parseInt(o[4]); i > 0; i--) {
                    take(lock, kind, -1, -1);
                    String number = Long.toString(System.nanoTime());
                    bucket(key + ".a").set(number);
                    bucket(key + ".b").set(number);
                    lock.unlock();
                }
                return "wrote " + o[4];
            case "read":
                int torn = 0;
                for (int i = Integer.parseInt(o[4]); i > 0; i--) {
                    take(lock, kind, -1, -1);
                    String a = bucket(key + ".a").get();
                    String b = bucket(key + ".b").get();
                    lock.unlock();
                    if (!String.valueOf(a).equals(String.valueOf(b))) {
                        torn++;
                    }
                }
                return "read " + o[4] + " torn " + torn;
            default:
                return "failed: no such verb";
        }
    }

    static boolean set(String kind, String key, int n) {
        RedissonClient c = clients.get(0);
        switch (kind) {
            case "semaphore":
                return c.getSemaphore(key).trySetPermits(n);
            case "permit":
                return c.getPermitExpirableSemaphore(key).trySetPermits(n);
            case "latch":
                return c.getCountDownLatch(key).trySetCount(n);
            default:
                throw new IllegalArgumentException("no kind " + kind);
        }
    }

    /** acquire takes a permit, or waits for a latch; null: not within wait. Only permits that expire have an id. */
    static String acquire(String kind, String key, long wait) throws Exception {
        RedissonClient c = clients.get(0);
        switch (kind) {
            case "semaphore":
                return c.getSemaphore(key).tryAcquire(1, wait, TimeUnit.MILLISECONDS) ? "-" : null;
            case "permit":
                return c.getPermitExpirableSemaphore(key).tryAcquire(wait, 600000, TimeUnit.MILLISECONDS);
            default:
                return c.getCountDownLatch(key).await(wait, TimeUnit.MILLISECONDS) ? "-" : null;
        }
    }

    /** give releases a permit, or counts a latch down. */
    static boolean give(String kind, String key, String id) {
        RedissonClient c = clients.get(0);
        switch (kind) {
            case "semaphore":
                c.getSemaphore(key).release();
                return true;
            case "permit":
                return c.getPermitExpirableSemaphore(key).tryRelease(id);
            default:
                c.getCountDownLatch(key).countDown();
                return true;
        }
    }

    static RBucket<String> bucket(String key) {
        return clients.get(0).getBucket(key, StringCodec.INSTANCE);
    }

    static RLock lock(String kind, String key) {
        RedissonClient c = clients.get(0);
        switch (kind) {
            case "lock":
                return c.getLock(key);
            case "fair":
                return c.getFairLock(key);
            case "fenced":
                return c.getFencedLock(key);
            case "spin":
                return c.getSpinLock(key);
            case "read":
                return c.getReadWriteLock(key).readLock();
            case "write":
                return c.getReadWriteLock(key).writeLock();
            case "multi":
                return multi.computeIfAbsent(Thread.currentThread().getId() + kind + key, k -> {
                    List<RLock> all = new ArrayList<>();
                    for (String one : key.split(",")) {
                        all.add(c.getLock(one));
                    }
                    return c.getMultiLock(all.toArray(new RLock[0]));
                });
            case "red":
                return multi.computeIfAbsent(Thread.currentThread().getId() + kind + key, k -> {
                    List<RLock> all = new ArrayList<>();
                    for (RedissonClient one : clients) {
                        all.add(one.getLock(key));
                    }
                    return new RedissonRedLock(all.toArray(new RLock[0]));
                });
            default:
                throw new IllegalArgumentException("no kind " + kind);
        }
    }

    /** take returns the fence, 0 if the kind has none, or -1 if somebody else held the lock all the time. */
    static long take(RLock lock, String kind, long wait, long lease) throws Exception {
        if (kind.equals("fenced")) {
            RFencedLock fenced = (RFencedLock) lock;
            Long fence;
            if (wait >= 0) {
                fence = fenced.tryLockAndGetToken(wait, lease, TimeUnit.MILLISECONDS);
            } else if (lease < 0) {
                fence = fenced.lockAndGetToken();
            } else {
                fence = fenced.lockAndGetToken(lease, TimeUnit.MILLISECONDS);
            }
            return fence == null ? -1 : fence;
        }
        if (wait < 0) {
            lock.lock(lease, TimeUnit.MILLISECONDS);
            return 0;
        }
        return lock.tryLock(wait, lease, TimeUnit.MILLISECONDS) ? 0 : -1;
    }

    static boolean release(RLock lock) {
        try {
            lock.unlock();
            return true;
        } catch (IllegalMonitorStateException e) {
            return false;
        }
    }

    static int count(RLock lock, String kind, int most, long limit, String number) throws Exception {
        int n = 0;
        for (long end = now() + limit * 1000; n < most && now() < end; n++) {
            long fence = take(lock, kind, -1, -1);
            if (fence > 0) {
                clients.get(0).getScript(StringCodec.INSTANCE).eval(RScript.Mode.READ_WRITE,
                        "return redis.call('RPUSH', KEYS[1], ARGV[1])", RScript.ReturnType.LONG, List.of(number + ".fences"), fence);
            }
            String now = bucket(number).get();
            bucket(number).set(Long.toString(Long.parseLong(now == null ? "0" : now) + 1));
            lock.unlock();
        }
        return n;
    }
}
