// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.yaml.snakeyaml.Yaml;

/**
 * A program with Redisson's locks, for tests. What it is told is in ../process_test.go. Its kinds: lock, fair, fenced, spin, read, write;
 * multi is an RMultiLock of plain locks; red is a RedissonRedLock of one plain lock of each deployment. Only this one has the kinds
 * semaphore, permit and latch, which a lock with slots sets first; who sets a latch has it as a lease, and counts it down by the release.
 */
public class Peer {
    /** A lease is what to do with a lock, on the thread that took it. A false answer says that it is lost. */
    record Lease(String id, long fence, Callable<Boolean> release, Callable<Boolean> held) {}

    static final List<RedissonClient> clients = new ArrayList<>();
    static final Map<String, ExecutorService> threads = new ConcurrentHashMap<>();
    static final Map<String, Lease> leases = new ConcurrentHashMap<>();

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
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            Map<String, Object> request = new Yaml().load(line); // JSON is YAML, which Redisson can read
            @SuppressWarnings("unchecked")
            Map<String, Object> params = (Map<String, Object>) request.get("params");
            String thread = String.valueOf(params.get("thread"));
            threads.computeIfAbsent(thread, t -> Executors.newSingleThreadExecutor()).submit(() -> {
                String answer;
                try {
                    answer = carryOut((String) request.get("method"), params);
                } catch (UnsupportedOperationException e) {
                    answer = failure("unsupported", e);
                } catch (Throwable e) {
                    answer = failure("", e);
                }
                say("{\"jsonrpc\":\"2.0\",\"id\":" + request.get("id") + "," + answer + "}");
            });
        }
        Runtime.getRuntime().halt(0); // what is held stays held, as when a program crashes
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static String failure(String kind, Object why) {
        return String.format("\"error\":{\"code\":-32000,\"message\":\"%s\",\"data\":{\"kind\":\"%s\"}}",
                why.toString().replaceAll("[\\p{Cntrl}\"\\\\]", " "), kind);
    }

    static String carryOut(String method, Map<String, Object> p) throws Exception {
        Lease lease = leases.get(String.valueOf(p.get("lease")));
        switch (method) {
            case "lock":
                lease = acquire(p);
                if (lease == null) {
                    return failure("busy", "busy");
                }
                leases.put(lease.id, lease);
                return String.format("\"result\":{\"lease\":\"%s\",\"fence\":\"%d\"}", lease.id, lease.fence);
            case "release":
                return lease.release.call() ? "\"result\":{}" : failure("lost", "lost");
            case "status":
                return lease.held.call() ? "\"result\":{}" : failure("lost", "lost");
            default:
                return "\"result\":{\"protocol\":1}";
        }
    }

    static long number(Map<String, Object> p, String name, long otherwise) {
        return p.get(name) == null ? otherwise : ((Number) p.get(name)).longValue();
    }

    /** acquire returns null if somebody else held the lock all the time. */
    @SuppressWarnings("unchecked")
    static Lease acquire(Map<String, Object> p) throws Exception {
        String kind = (String) p.get("kind");
        List<String> keys = (List<String>) p.get("keys");
        RedissonClient c = clients.get(0);
        long wait = number(p, "wait_ms", -1);
        int slots = (int) number(p, "slots", 0);
        String id = UUID.randomUUID().toString();
        switch (kind) {
            case "semaphore":
                RSemaphore s = c.getSemaphore(keys.get(0));
                boolean set = slots == 0 || s.trySetPermits(slots);
                return set && s.tryAcquire(1, wait, TimeUnit.MILLISECONDS) ? new Lease(id, 0, () -> { s.release(); return true; }, null) : null;
            case "permit":
                RPermitExpirableSemaphore e = c.getPermitExpirableSemaphore(keys.get(0));
                String permit = slots == 0 || e.trySetPermits(slots) ? e.tryAcquire(wait, 600000, TimeUnit.MILLISECONDS) : null;
                return permit == null ? null : new Lease(id, 0, () -> e.tryRelease(permit), null);
            case "latch":
                RCountDownLatch l = c.getCountDownLatch(keys.get(0));
                boolean open = slots == 0 ? l.await(wait, TimeUnit.MILLISECONDS) : l.trySetCount(slots);
                return open ? new Lease(id, 0, () -> { l.countDown(); return true; }, null) : null;
            default:
                RLock lock = lock(kind, keys);
                long fence = take(lock, kind, wait, number(p, "ttl_ms", -1));
                return fence < 0 ? null : new Lease(id, fence, () -> release(lock), lock::isHeldByCurrentThread);
        }
    }

    static RLock lock(String kind, List<String> keys) {
        RedissonClient c = clients.get(0);
        String key = keys.get(0);
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
                return c.getMultiLock(keys.stream().map(c::getLock).toArray(RLock[]::new));
            case "red":
                return new RedissonRedLock(clients.stream().map(one -> one.getLock(key)).toArray(RLock[]::new));
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
}
