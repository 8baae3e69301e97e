// Copyright 2026 The hasp Authors
// SPDX-License-Identifier: Apache-2.0

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * A program with Curator's locks, for tests. Each line of its input is an order: the name of a thread, a verb and its
 * arguments. It answers each with a line: the name and what came of it. The orders of one thread are carried out one after another.
 *
 * <pre>
 * T lock KIND PATH MILLISECONDS   KIND is mutex, read, write or sem:N. "locked" or "timeout"
 * T unlock                        the latest of the thread's locks. "unlocked"
 * T count KIND PATH FILE N        adds 1 to the number in a file N times, each under the lock. "counted"
 * </pre>
 */
public class Peer {
    interface Held {
        void release() throws Exception;
    }

    static CuratorFramework client;
    static final ConcurrentHashMap<String, ExecutorService> threads = new ConcurrentHashMap<>();
    static final ConcurrentHashMap<String, java.util.ArrayDeque<Held>> held = new ConcurrentHashMap<>();
    static final ConcurrentHashMap<String, Object> locks = new ConcurrentHashMap<>();

    public static void main(String[] args) throws Exception {
        client = CuratorFrameworkFactory.newClient(args[0], 10000, 10000, new ExponentialBackoffRetry(100, 10));
        client.start();
        client.blockUntilConnected();
        say("- ready");
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = in.readLine()) != null; ) {
            String[] order = line.split(" ");
            threads.computeIfAbsent(order[0], t -> Executors.newSingleThreadExecutor()).submit(() -> {
                String answer;
                try {
                    answer = carryOut(order);
                } catch (Throwable e) {
                    answer = "failed: " + e;
                }
                say(order[0] + " " + answer);
            });
        }
        System.exit(0); // its session ends with the test
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    static String carryOut(String[] o) throws Exception {
        java.util.ArrayDeque<Held> mine = held.computeIfAbsent(o[0], t -> new java.util.ArrayDeque<>());
        switch (o[1]) {
            case "lock":
                Held h = acquire(o[2], o[3], Long.parseLong(o[4]));
                if (h == null) {
                    return "timeout";
                }
                mine.push(h);
                return "locked";
            case "unlock":
                mine.pop().release();
                return "unlocked";
            case "count":
                Path file = Path.of(o[4]);
                for (int i = Integer.parseInt(o[5]); i > 0; i--) {
                    Held c = acquire(o[2], o[3], 60000);
                    int n = Integer.parseInt(Files.readString(file).trim());
                    Files.writeString(file, Integer.toString(n + 1));
                    c.release();
                }
                return "counted";
            default:
                return "failed: no such verb";
        }
    }

    static Held acquire(String kind, String path, long ms) throws Exception {
        if (kind.startsWith("sem:")) {
            int n = Integer.parseInt(kind.substring(4));
            Lease lease = new InterProcessSemaphoreV2(client, path, n).acquire(ms, TimeUnit.MILLISECONDS);
            return lease == null ? null : lease::close;
        }
        InterProcessLock lock;
        if (kind.equals("mutex")) {
            lock = (InterProcessMutex) locks.computeIfAbsent(kind + path, p -> new InterProcessMutex(client, path));
        } else {
            InterProcessReadWriteLock rw =
                    (InterProcessReadWriteLock) locks.computeIfAbsent("rw" + path, p -> new InterProcessReadWriteLock(client, path));
            lock = kind.equals("read") ? rw.readLock() : rw.writeLock();
        }
        return lock.acquire(ms, TimeUnit.MILLISECONDS) ? lock::release : null;
    }
}
