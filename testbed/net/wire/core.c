/* The core in C: carries frames between TAP devices. Same behaviour and same messages as process.py, for a fifth of its
 * processor time (the kernel's own share is the same); model.py and protocol.py say what everything means.
 *
 * core CONTROL COUNTERS MEMORY PRIORITY   serve the supervisor, which has the other end of socket CONTROL
 * core model                              decide about frames given on standard input (for the test against model.py)
 */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { VERSION = 1, MOST_LINKS = 4096, BUCKETS = 24, BATCH = 32, DELIVERIES = 256, EVENTS = 256, ROUNDS = 16 };
enum { HELLO, ADD, SEED, SET, OPEN, REMOVE, PING };
enum { VNET_HEADER = 10, ETHERNET_HEADER = 14, LONGEST_FRAME = VNET_HEADER + ETHERNET_HEADER + 4 + 65535, OVERHEAD = 64 };
enum { CONTROL = -1, TIMER = -2 }; /* in epoll's data, where a direction has its number */
static const int64_t SLACK = 20000, PACE = 100000; /* nanoseconds */

/* ---- what happens to frames (model.py) ---- */

struct behaviour {
    int64_t delay, jitter;
    uint64_t loss, enter, leave, duplicate, corrupt, limit;
    uint32_t burst, reorder;
};

struct model {
    struct behaviour now;
    uint64_t loss, duplicate, corrupt, jitter; /* states of generators */
    int64_t last;
    int bad;
};

struct copy {
    int64_t due, bit;
};

static int64_t longer(int64_t a, int64_t b) { return a > b ? a : b; }

static uint64_t draw(uint64_t *state)
{
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (z ^ z >> 31) >> 11;
}

static int64_t draw_below(uint64_t *state, uint64_t end)
{
    return (int64_t)((unsigned __int128)draw(state) * end >> 53);
}

static int is_lost(struct model *m)
{
    if (!m->now.burst)
        return draw(&m->loss) < m->now.loss;
    int lost = m->bad;
    if (draw(&m->loss) < (lost ? m->now.leave : m->now.enter))
        m->bad = !lost;
    return lost;
}

static struct copy make_copy(struct model *m, int64_t time, int length)
{
    struct copy copy = {time + m->now.delay, -1};
    if (m->now.corrupt && length > ETHERNET_HEADER && draw(&m->corrupt) < m->now.corrupt)
        copy.bit = 8 * ETHERNET_HEADER + draw_below(&m->corrupt, 8 * (uint64_t)(length - ETHERNET_HEADER));
    if (m->now.jitter) {
        int64_t offset = draw_below(&m->jitter, 2 * (uint64_t)m->now.jitter + 1) - m->now.jitter;
        copy.due = longer(time, copy.due + offset);
    }
    if (!m->now.reorder)
        copy.due = longer(copy.due, m->last);
    m->last = longer(m->last, copy.due);
    return copy;
}

static int arrive(struct model *m, int64_t time, int length, struct copy copies[2])
{
    if (m->now.loss && is_lost(m))
        return 0;
    copies[0] = make_copy(m, time, length);
    if (!m->now.duplicate || draw(&m->duplicate) >= m->now.duplicate)
        return 1;
    copies[1] = make_copy(m, time, length);
    return 2;
}

static void change(struct model *m, const struct behaviour *now)
{
    struct behaviour old = m->now;
    m->now = *now;
    if (now->loss != old.loss || now->burst != old.burst || now->leave != old.leave)
        m->bad = now->burst && draw(&m->loss) < now->loss;
}

static void seed(struct model *m, const uint64_t seeds[4])
{
    struct behaviour now = m->now;
    memset(m, 0, sizeof *m);
    m->loss = seeds[0];
    m->duplicate = seeds[1];
    m->corrupt = seeds[2];
    m->jitter = seeds[3];
    change(m, &now);
}

/* ---- messages and counters (protocol.py) ---- */

struct message {
    uint32_t kind, sequence, link, argument, error, unused;
    struct behaviour behaviour;
    uint64_t values[4];
};

struct counters { /* 512 bytes, in memory shared with the supervisor */
    uint64_t frames, bytes, delivered, delivered_bytes, lost, duplicated, corrupted, full, closed, refused, latest;
    uint64_t unused[5];
    uint64_t lateness[BUCKETS];
    uint64_t padding[64 - 16 - BUCKETS];
};
_Static_assert(sizeof(struct counters) == 512 && sizeof(struct message) == 128, "layout of protocol.py");

/* ---- frames in flight: one heap for all links, by due time and then by arrival ---- */

struct frame {
    int direction, length; /* length with the header for the kernel */
    unsigned char data[];
};

struct entry {
    int64_t due;
    uint64_t order;
    struct frame *frame;
};

static struct entry *heap;
static size_t heap_count, heap_room, heap_bytes, heap_most;
static uint64_t heap_order;

static int before(const struct entry *a, const struct entry *b)
{
    return a->due != b->due ? a->due < b->due : a->order < b->order;
}

static void *must(void *memory)
{
    if (!memory) {
        fputs("out of memory\n", stderr);
        exit(12);
    }
    return memory;
}

static void sink(size_t at)
{
    struct entry entry = heap[at];
    for (size_t child; (child = 2 * at + 1) < heap_count; at = child) {
        if (child + 1 < heap_count && before(&heap[child + 1], &heap[child]))
            child++;
        if (!before(&heap[child], &entry))
            break;
        heap[at] = heap[child];
    }
    heap[at] = entry;
}

static void push(int64_t due, struct frame *frame)
{
    if (heap_count == heap_room) {
        heap_room = heap_room ? 2 * heap_room : 4096;
        heap = must(realloc(heap, heap_room * sizeof *heap));
    }
    struct entry entry = {due, heap_order++, frame};
    size_t at = heap_count++;
    for (size_t parent; at && before(&entry, &heap[parent = (at - 1) / 2]); at = parent)
        heap[at] = heap[parent];
    heap[at] = entry;
}

static struct entry pop(void)
{
    struct entry first = heap[0];
    heap[0] = heap[--heap_count];
    if (heap_count)
        sink(0);
    return first;
}

static void order_heap(void)
{
    for (size_t at = heap_count / 2; at-- > 0;)
        sink(at);
}

/* ---- links ---- */

struct direction {
    struct model model;
    int source, target; /* -1: no such link */
    int open;
    size_t queued;
};

static struct direction directions[2 * MOST_LINKS];
static struct counters *table;
static int epoll_fd, timer_fd, control_fd;
static int64_t armed;

static int64_t clock_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void watch(int fd, int what)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = what};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event)) {
        perror("epoll_ctl");
        exit(1);
    }
}

static void drop(struct frame *frame)
{
    size_t size = (size_t)frame->length + OVERHEAD;
    directions[frame->direction].queued -= size;
    heap_bytes -= size;
    free(frame);
}

static void enqueue(int number, struct frame *frame, struct copy copy)
{
    struct direction *d = &directions[number];
    size_t size = (size_t)frame->length + OVERHEAD;
    if (d->queued + size > d->model.now.limit || heap_bytes + size > heap_most) {
        table[number].full++;
        free(frame);
        return;
    }
    if (copy.bit >= 0) {
        table[number].corrupted++;
        frame->data[VNET_HEADER + copy.bit / 8] ^= (unsigned char)(1 << copy.bit % 8);
    }
    frame->direction = number;
    d->queued += size;
    heap_bytes += size;
    push(copy.due, frame);
}

static size_t size_of(const struct frame *frame) { return sizeof *frame + (size_t)frame->length; }

/* The frame in *spare in memory of its own size. Long ones are cut in place rather than copied; of short ones that
 * would leave holes in memory that no next long one fits in. */
static struct frame *keep(struct frame **spare, int length)
{
    (*spare)->length = length;
    size_t size = size_of(*spare);
    if (length < 8192)
        return memcpy(must(malloc(size)), *spare, size);
    struct frame *frame = must(realloc(*spare, size));
    *spare = NULL;
    return frame;
}

static void receive(int number)
{
    struct direction *d = &directions[number];
    struct counters *c = &table[number];
    static struct frame *spare;
    for (int i = 0; i < BATCH; i++) {
        if (!spare)
            spare = must(malloc(sizeof *spare + LONGEST_FRAME));
        ssize_t length = read(d->source, spare->data, LONGEST_FRAME);
        if (length < 0) {
            if (errno != EAGAIN && errno != EINTR) /* the device is gone; reading it again would never block */
                epoll_ctl(epoll_fd, EPOLL_CTL_DEL, d->source, NULL);
            return;
        }
        c->frames++;
        c->bytes += (uint64_t)length - VNET_HEADER;
        if (!d->open) {
            c->closed++;
            continue;
        }
        struct copy copies[2];
        int count = arrive(&d->model, clock_now(), (int)length - VNET_HEADER, copies);
        if (count == 0) {
            c->lost++;
            continue;
        }
        struct frame *frame = keep(&spare, (int)length);
        struct frame *second = NULL;
        if (count == 2) {
            c->duplicated++;
            second = memcpy(must(malloc(size_of(frame))), frame, size_of(frame));
        }
        enqueue(number, frame, copies[0]);
        if (second)
            enqueue(number, second, copies[1]);
    }
}

static void deliver(void)
{
    for (int i = 0; heap_count && i < DELIVERIES; i++) {
        int64_t now = clock_now();
        if (heap[0].due > now + SLACK)
            return;
        struct entry entry = pop();
        struct frame *frame = entry.frame;
        struct counters *c = &table[frame->direction];
        if (write(directions[frame->direction].target, frame->data, (size_t)frame->length) == frame->length) {
            uint64_t late = (uint64_t)longer(0, now - entry.due), microseconds = late / 1000;
            int bucket = microseconds ? 64 - __builtin_clzll(microseconds) : 0;
            c->delivered++;
            c->delivered_bytes += (uint64_t)frame->length - VNET_HEADER;
            c->lateness[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
            if (late > c->latest)
                c->latest = late;
        } else {
            c->refused++;
        }
        drop(frame);
    }
}

static void discard(uint32_t link)
{
    size_t kept = 0;
    for (size_t i = 0; i < heap_count; i++) {
        struct frame *frame = heap[i].frame;
        if ((uint32_t)frame->direction / 2 != link) {
            heap[kept++] = heap[i];
            continue;
        }
        table[frame->direction].closed++;
        drop(frame);
    }
    heap_count = kept;
    order_heap();
}

/* ---- what the supervisor asks ---- */

static void add(uint32_t link, const int fds[2])
{
    int number = (int)(2 * link);
    for (int side = 0; side < 2; side++) {
        struct direction *d = &directions[number + side];
        memset(d, 0, sizeof *d);
        d->source = fds[side];
        d->target = fds[1 - side];
        watch(d->source, number + side);
    }
}

static void remove_link(uint32_t link)
{
    discard(link);
    struct direction *pair = &directions[2 * link];
    for (int side = 0; side < 2; side++) {
        epoll_ctl(epoll_fd, EPOLL_CTL_DEL, pair[side].source, NULL);
        close(pair[side].source);
        pair[side].source = pair[side].target = -1;
    }
}

static void act(struct message *m, const int fds[2])
{
    if (m->kind == PING) {
        m->values[0] = heap_count;
        m->values[1] = heap_bytes;
        return;
    }
    if (m->link >= MOST_LINKS || m->argument > 1 || (m->kind == ADD) != (directions[2 * m->link].target < 0)) {
        m->error = ENOENT;
        return;
    }
    int number = (int)(2 * m->link + m->argument);
    switch (m->kind) {
    case ADD:
        add(m->link, fds);
        m->values[0] = (uint64_t)fds[0];
        m->values[1] = (uint64_t)fds[1];
        break;
    case SEED:
        seed(&directions[number].model, m->values);
        break;
    case SET:
        change(&directions[number].model, &m->behaviour);
        m->behaviour = directions[number].model.now;
        break;
    case OPEN:
        directions[2 * m->link].open = directions[2 * m->link + 1].open = (int)m->argument;
        if (!m->argument)
            discard(m->link);
        break;
    case REMOVE:
        remove_link(m->link);
        break;
    default:
        m->error = EINVAL;
    }
}

static void obey(void)
{
    struct message m;
    union {
        char data[CMSG_SPACE(2 * sizeof(int))];
        struct cmsghdr align;
    } space;
    struct iovec part = {&m, sizeof m};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &space, .msg_controllen = sizeof space};
    ssize_t length = recvmsg(control_fd, &head, MSG_CMSG_CLOEXEC);
    if (length == 0)
        exit(0); /* the supervisor is gone */
    if (length < 0)
        return;
    int fds[2] = {-1, -1};
    struct cmsghdr *c = CMSG_FIRSTHDR(&head);
    if (c && c->cmsg_type == SCM_RIGHTS)
        memcpy(fds, CMSG_DATA(c), c->cmsg_len - CMSG_LEN(0) < sizeof fds ? c->cmsg_len - CMSG_LEN(0) : sizeof fds);
    if (length == sizeof m)
        act(&m, fds);
    else
        m.error = EBADMSG;
    if (send(control_fd, &m, sizeof m, MSG_NOSIGNAL) < 0)
        exit(0);
}

static int in_real_time(int priority)
{
    struct sched_param parameter = {.sched_priority = priority};
    if (sched_setscheduler(0, SCHED_FIFO, &parameter) == 0)
        return 1;
    setpriority(PRIO_PROCESS, 0, -20);
    return 0;
}

/* How long to wait in epoll: not at all if a frame is due; else for ever, with the timer set for the next one. */
static int arm(void)
{
    if (!heap_count)
        return -1;
    int64_t due = heap[0].due - SLACK;
    if (due <= clock_now())
        return 0;
    if (due != armed) {
        struct itimerspec value = {.it_value = {due / 1000000000, due % 1000000000}};
        timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &value, NULL);
        armed = due;
    }
    return -1;
}

/* Under load, go round less often and do more each time: a wake-up costs more than a frame. ROUNDS in a row may come at
 * once, so that a wire with little to do is never late for this. */
static void pace(void)
{
    static int64_t begun[ROUNDS];
    static unsigned number;
    int64_t *oldest = &begun[number++ % ROUNDS], now = clock_now(), next = *oldest + ROUNDS * PACE;
    if (now < next) {
        struct timespec until = {next / 1000000000, next % 1000000000};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        now = next;
    }
    *oldest = now;
}

static void serve(void)
{
    static struct epoll_event events[EVENTS];
    for (;;) {
        pace();
        int count = epoll_wait(epoll_fd, events, EVENTS, arm());
        for (int i = 0; i < count; i++) {
            int what = events[i].data.fd;
            uint64_t times;
            if (what == TIMER) {
                armed = 0;
                if (read(timer_fd, &times, sizeof times) < 0)
                    continue; /* set anew meanwhile */
            } else if (what == CONTROL) {
                obey();
            } else if (directions[what].source >= 0) { /* it may have been removed by what came before */
                receive(what);
                deliver();
            }
        }
        deliver();
    }
}

/* Lines "S" + 4 seeds, "B" + 9 numbers (a behaviour without its limit), "F time length"; prints what becomes of each
 * frame. */
static int compare(void)
{
    static struct model m;
    char kind;
    while (scanf(" %c", &kind) == 1) {
        long long time, length, n[4];
        unsigned long long u[5];
        if (kind == 'S' && scanf("%llu %llu %llu %llu", &u[0], &u[1], &u[2], &u[3]) == 4) {
            seed(&m, (uint64_t[]){u[0], u[1], u[2], u[3]});
        } else if (kind == 'B' && scanf("%lld %lld %llu %llu %llu %llu %llu %lld %lld", &n[0], &n[1], &u[0], &u[1], &u[2],
                                        &u[3], &u[4], &n[2], &n[3]) == 9) {
            struct behaviour b = {n[0], n[1], u[0], u[1], u[2], u[3], u[4], 0, (uint32_t)n[2], (uint32_t)n[3]};
            change(&m, &b);
        } else if (kind == 'F' && scanf("%lld %lld", &time, &length) == 2) {
            struct copy copies[2];
            int count = arrive(&m, time, (int)length, copies);
            for (int i = 0; i < count; i++)
                printf("%lld %lld ", (long long)copies[i].due, (long long)copies[i].bit);
            puts("");
        } else {
            return 1;
        }
    }
    return 0;
}

int main(int count, char **words)
{
    if (count == 2 && strcmp(words[1], "model") == 0)
        return compare();
    if (count != 5)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_NAME, "testbed-wire");
    control_fd = atoi(words[1]);
    heap_most = strtoull(words[3], NULL, 10);
    table = mmap(NULL, 2 * MOST_LINKS * sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(words[2]), 0);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (table == MAP_FAILED || epoll_fd < 0 || timer_fd < 0) {
        perror("core");
        return 1;
    }
    for (int i = 0; i < 2 * MOST_LINKS; i++)
        directions[i].source = directions[i].target = -1;
    mallopt(M_TRIM_THRESHOLD, 64 << 20); /* keep what it has: page faults take time, and swapped pages more */
    mallopt(M_MMAP_THRESHOLD, 1 << 30);
    mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT);
    watch(control_fd, CONTROL);
    watch(timer_fd, TIMER);
    struct message hello = {.kind = HELLO, .argument = (uint32_t)in_real_time(atoi(words[4])), .values = {VERSION}};
    if (send(control_fd, &hello, sizeof hello, MSG_NOSIGNAL) < 0)
        return 1;
    serve();
}
