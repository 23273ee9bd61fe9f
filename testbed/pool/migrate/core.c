/* The core in C: takes the connections of a batch out of their sockets and puts them into others. Same behaviour as
 * tcp.py and options.py, which say what everything means, for a third of the processor time; native.py calls it.
 *
 * Each function deals with all rows that are not marked `skip`, and leaves in each what went wrong with it.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_BUF_LOCK
#define SO_BUF_LOCK 72
#endif
enum { ESTABLISHED = 1, FIN_WAIT1 = 4, FIN_WAIT2 = 5, CLOSE_WAIT = 8, LAST_ACK = 9, CLOSING = 11 };
enum { FIN_SENT = 1 << FIN_WAIT1 | 1 << FIN_WAIT2 | 1 << LAST_ACK | 1 << CLOSING };
enum { FIN_RECEIVED = 1 << CLOSE_WAIT | 1 << LAST_ACK | 1 << CLOSING };
enum { MOVABLE = 1 << ESTABLISHED | 1 << CLOSE_WAIT | FIN_SENT };
enum { INFO_TIMESTAMPS = 1, INFO_SACK = 2, INFO_WSCALE = 4 };
enum { OPTION_MSS = 2, OPTION_WINDOW = 3, OPTION_SACK = 4, OPTION_TIMESTAMP = 8 };
/* errors that are no errno; the row's detail is the number of what was found */
enum { NO_TCP = -1, PROTOCOL = -2, STATE = -3, STATE_NOW = -4, UPPER_LAYER = -5, URGENT = -6 };
enum { MOST_SETTINGS = 24, PIECE = 1 << 18, MANY = 16 };

struct setting {
    int32_t level, option, value;
};

struct settings {
    int32_t count;
    struct setting of[MOST_SETTINGS];
};

struct row {
    int32_t old, made; /* descriptors */
    int32_t skip, error, detail;
    int32_t family, state;
    uint32_t send_seq, receive_seq;
    uint32_t send_length, unsent, receive_length;
    struct tcp_repair_window window;
    int32_t mss;
    uint32_t send_scale, receive_scale, agreed, timestamp;
    int32_t send_buffer, receive_buffer, fixed_buffers;
    struct settings settings; /* those that are not as in a new socket */
    struct linger linger;
    char congestion[16];
    struct sockaddr_in6 local, peer; /* or sockaddr_in */
    uint8_t *send_queue, *receive_queue;
};

static struct settings plain4, plain6; /* what a new socket has */
static int drop_all = -1;              /* a program, if the kernel takes it: far cheaper than one filter a socket */

static int set(int fd, int level, int option, const void *value, socklen_t length)
{
    return setsockopt(fd, level, option, value, length);
}

static int set_number(int fd, int level, int option, int value)
{
    return set(fd, level, option, &value, sizeof value);
}

static int get(int fd, int level, int option, void *value, socklen_t length)
{
    memset(value, 0, length);
    return getsockopt(fd, level, option, value, &length);
}

static int refuse(struct row *c, int why, int detail)
{
    c->error = why;
    c->detail = detail;
    return -1;
}

/* How many rows it fails with. */
static int each(struct row *rows, int count, int (*work)(struct row *))
{
    int failed = 0;
    for (struct row *c = rows; c < rows + count; c++) {
        if (c->skip)
            continue;
        c->error = c->detail = 0;
        if (work(c) < 0) {
            failed++;
            if (!c->error)
                c->error = errno;
        }
    }
    return failed;
}

struct share {
    struct row *rows;
    int count, failed, (*work)(struct row *);
};

static void *do_share(void *given)
{
    struct share *share = given;
    share->failed = each(share->rows, share->count, share->work);
    return NULL;
}

/* A thread like this one, in the same namespaces. One that had to wait for its turn would make it take longer. */
static int start_helper(pthread_t *helper, struct share *share)
{
    pthread_attr_t like;
    struct sched_param priority;
    int policy = sched_getscheduler(0) & ~SCHED_RESET_ON_FORK;
    if (policy != SCHED_FIFO || sched_getparam(0, &priority) < 0)
        return -1;
    pthread_attr_init(&like);
    pthread_attr_setinheritsched(&like, PTHREAD_EXPLICIT_SCHED);
    pthread_attr_setschedpolicy(&like, policy);
    pthread_attr_setschedparam(&like, &priority);
    int error = pthread_create(helper, &like, do_share, share);
    pthread_attr_destroy(&like);
    return error ? -1 : 0;
}

/* The same, half of it by another thread, for steps that take a millisecond. */
static int each_by_two(struct row *rows, int count, int (*work)(struct row *))
{
    int half = count / 2;
    struct share one = {rows, half, 0, work}, other = {rows + half, count - half, 0, work};
    pthread_t helper;
    int helped = count >= MANY && start_helper(&helper, &one) == 0;
    do_share(&other);
    if (helped)
        pthread_join(helper, NULL);
    else
        do_share(&one);
    return one.failed + other.failed;
}

/* ---- before anything is touched ---- */

static int check(struct row *c)
{
    int family, type, protocol;
    uint8_t state;
    char name[16], byte;
    if (get(c->old, SOL_SOCKET, SO_DOMAIN, &family, sizeof family) < 0)
        return -1;
    if (get(c->old, SOL_SOCKET, SO_TYPE, &type, sizeof type) < 0)
        return -1;
    if ((family != AF_INET && family != AF_INET6) || type != SOCK_STREAM)
        return refuse(c, NO_TCP, 0);
    if (get(c->old, SOL_SOCKET, SO_PROTOCOL, &protocol, sizeof protocol) < 0)
        return -1;
    if (protocol != IPPROTO_TCP)
        return refuse(c, PROTOCOL, protocol);
    if (get(c->old, IPPROTO_TCP, TCP_INFO, &state, sizeof state) < 0)
        return -1;
    if (!(1 << state & MOVABLE))
        return refuse(c, STATE, state);
    if (get(c->old, IPPROTO_TCP, TCP_ULP, name, sizeof name) == 0 && name[0])
        return refuse(c, UPPER_LAYER, 0);
    if (recv(c->old, &byte, 1, MSG_OOB | MSG_PEEK | MSG_DONTWAIT) >= 0)
        return refuse(c, URGENT, 0);
    return 0;
}

/* ---- out of the old socket ---- */

static int drop_what_comes(int fd)
{
    if (drop_all >= 0)
        return set(fd, SOL_SOCKET, SO_ATTACH_BPF, &drop_all, sizeof drop_all);
    struct sock_filter nothing[] = {BPF_STMT(BPF_RET | BPF_K, 0)};
    struct sock_fprog program = {1, nothing};
    return set(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program);
}

static uint8_t *peek(int fd, uint32_t length)
{
    uint8_t *data = malloc(length ? length : 1);
    if (data && length) {
        ssize_t got = recv(fd, data, length, MSG_PEEK | MSG_DONTWAIT);
        if (got != (ssize_t)length) {
            if (got >= 0)
                errno = EIO;
            free(data);
            return NULL;
        }
    }
    return data;
}

static void release(struct row *c)
{
    free(c->send_queue);
    free(c->receive_queue);
    c->send_queue = c->receive_queue = NULL;
}

static int read_settings(struct row *c)
{
    const struct settings *plain = c->family == AF_INET ? &plain4 : &plain6;
    c->settings.count = 0;
    for (const struct setting *one = plain->of; one < plain->of + plain->count; one++) {
        int value;
        if (get(c->old, one->level, one->option, &value, sizeof value) < 0)
            return -1;
        if (value != one->value)
            c->settings.of[c->settings.count++] = (struct setting){one->level, one->option, value};
    }
    if (get(c->old, SOL_SOCKET, SO_LINGER, &c->linger, sizeof c->linger) < 0)
        return -1;
    return get(c->old, IPPROTO_TCP, TCP_CONGESTION, c->congestion, sizeof c->congestion);
}

static int read_positions(struct row *c)
{
    int fd = c->old, outstanding, unsent, waiting, fin = !!(1 << c->state & FIN_SENT);
    if (set_number(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, TCP_RECV_QUEUE) < 0 ||
        get(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, &c->receive_seq, 4) < 0 ||
        set_number(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, TCP_SEND_QUEUE) < 0 ||
        get(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, &c->send_seq, 4) < 0 || ioctl(fd, SIOCOUTQ, &outstanding) < 0 ||
        ioctl(fd, SIOCOUTQNSD, &unsent) < 0 || ioctl(fd, SIOCINQ, &waiting) < 0)
        return -1;
    if (fin && c->state != FIN_WAIT2) { /* their FIN has a number too, and stands at the end of the queue */
        outstanding--;
        unsent = unsent > 0 ? unsent - 1 : 0;
    }
    c->send_seq -= (uint32_t)fin;
    c->receive_seq -= !!(1 << c->state & FIN_RECEIVED);
    c->send_length = outstanding > 0 ? (uint32_t)outstanding : 0;
    c->unsent = (uint32_t)unsent;
    c->receive_length = waiting > 0 ? (uint32_t)waiting : 0;
    return 0;
}

static int dump(struct row *c)
{
    int fd = c->old;
    uint8_t info[8];
    socklen_t local = sizeof c->local, peer = sizeof c->peer;
    release(c);
    if (get(fd, IPPROTO_TCP, TCP_INFO, info, sizeof info) < 0)
        return -1;
    c->state = info[0];
    if (!(1 << c->state & MOVABLE))
        return refuse(c, STATE_NOW, c->state);
    c->agreed = info[5];
    c->send_scale = info[6] & 15;
    c->receive_scale = info[6] >> 4;
    if (read_positions(c) < 0)
        return -1;
    if (!(c->send_queue = peek(fd, c->send_length))) /* the send queue is the chosen one still */
        return -1;
    if (c->receive_length && set_number(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, TCP_RECV_QUEUE) < 0)
        return -1;
    if (!(c->receive_queue = peek(fd, c->receive_length)))
        return -1;
    if (get(fd, SOL_SOCKET, SO_SNDBUF, &c->send_buffer, 4) < 0 ||
        get(fd, SOL_SOCKET, SO_RCVBUF, &c->receive_buffer, 4) < 0 ||
        get(fd, SOL_SOCKET, SO_BUF_LOCK, &c->fixed_buffers, 4) < 0 ||
        get(fd, IPPROTO_TCP, TCP_REPAIR_WINDOW, &c->window, sizeof c->window) < 0 ||
        getsockname(fd, (struct sockaddr *)&c->local, &local) < 0 ||
        getpeername(fd, (struct sockaddr *)&c->peer, &peer) < 0 ||
        get(fd, IPPROTO_TCP, TCP_MAXSEG, &c->mss, 4) < 0 || get(fd, IPPROTO_TCP, TCP_TIMESTAMP, &c->timestamp, 4) < 0)
        return -1;
    return read_settings(c);
}

static int freeze_and_dump(struct row *c)
{
    if (drop_what_comes(c->old) < 0 || set_number(c->old, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_ON) < 0)
        return -1;
    return dump(c);
}

/* Whether nothing came in since the dump, by a packet that was already past the filter when it was put up. */
static int unchanged(struct row *c)
{
    int waiting, outstanding, fin = c->state != FIN_WAIT2 && 1 << c->state & FIN_SENT;
    uint8_t state;
    return ioctl(c->old, SIOCINQ, &waiting) == 0 && (uint32_t)waiting == c->receive_length &&
           ioctl(c->old, SIOCOUTQ, &outstanding) == 0 && (uint32_t)(outstanding - fin) == c->send_length &&
           get(c->old, IPPROTO_TCP, TCP_INFO, &state, 1) == 0 && state == c->state;
}

static int refresh(struct row *c) { return unchanged(c) ? 0 : dump(c); }

/* ---- into the new socket ---- */

static int fill(int fd, const uint8_t *data, size_t length)
{
    while (length) {
        ssize_t sent = send(fd, data, length < PIECE ? length : PIECE, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0)
            return -1;
        data += sent;
        length -= (size_t)sent;
    }
    return 0;
}

static int size_buffers(int fd, int64_t send, int64_t receive)
{
    if (set_number(fd, SOL_SOCKET, SO_SNDBUFFORCE, (int)(send / 2)) < 0)
        return -1;
    return set_number(fd, SOL_SOCKET, SO_RCVBUFFORCE, (int)(receive / 2));
}

static int set_sequence(int fd, int queue, uint32_t number)
{
    if (set_number(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, queue) < 0)
        return -1;
    return set(fd, IPPROTO_TCP, TCP_QUEUE_SEQ, &number, sizeof number);
}

static int agree(struct row *c)
{
    struct tcp_repair_opt options[4] = {{OPTION_MSS, (uint32_t)c->mss}};
    socklen_t count = 1;
    if (c->agreed & INFO_WSCALE)
        options[count++] = (struct tcp_repair_opt){OPTION_WINDOW, c->send_scale | c->receive_scale << 16};
    if (c->agreed & INFO_SACK)
        options[count++] = (struct tcp_repair_opt){OPTION_SACK, 0};
    if (c->agreed & INFO_TIMESTAMPS)
        options[count++] = (struct tcp_repair_opt){OPTION_TIMESTAMP, 0};
    if (set(c->made, IPPROTO_TCP, TCP_REPAIR_OPTIONS, options, count * (socklen_t)sizeof *options) < 0)
        return -1;
    if (c->agreed & INFO_TIMESTAMPS)
        return set(c->made, IPPROTO_TCP, TCP_TIMESTAMP, &c->timestamp, sizeof c->timestamp);
    return 0;
}

static int write_settings(struct row *c)
{
    for (int place = 0; place < c->settings.count; place++) {
        struct setting *one = &c->settings.of[place];
        if (set_number(c->made, one->level, one->option, one->value) < 0)
            return -1;
    }
    if (c->linger.l_onoff)
        return set(c->made, SOL_SOCKET, SO_LINGER, &c->linger, sizeof c->linger);
    return 0;
}

static int write_queues(struct row *c)
{
    int fd = c->made;
    uint32_t sent = c->send_length - c->unsent;
    struct tcp_repair_window window = c->window;
    if (1 << c->state & FIN_RECEIVED) { /* the FIN is not in the restored connection yet */
        window.rcv_wup--;
        window.rcv_wnd++;
    }
    if (c->receive_length && (set_number(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, TCP_RECV_QUEUE) < 0 ||
                              fill(fd, c->receive_queue, c->receive_length) < 0))
        return -1;
    if (sent && (set_number(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, TCP_SEND_QUEUE) < 0 || fill(fd, c->send_queue, sent) < 0))
        return -1;
    if (set(fd, IPPROTO_TCP, TCP_REPAIR_WINDOW, &window, sizeof window) < 0)
        return -1;
    return set_number(fd, IPPROTO_TCP, TCP_REPAIR_QUEUE, TCP_NO_QUEUE);
}

static int build(struct row *c)
{
    int fd = c->made;
    char congestion[16];
    socklen_t length = c->family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    if (drop_what_comes(fd) < 0 || set_number(fd, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_ON) < 0)
        return -1;
    if (c->family == AF_INET6 && set_number(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0) < 0)
        return -1;
    if (size_buffers(fd, c->send_buffer + 4 * (int64_t)c->send_length, c->receive_buffer + 4 * (int64_t)c->receive_length))
        return -1;
    if (get(fd, IPPROTO_TCP, TCP_CONGESTION, congestion, sizeof congestion) < 0)
        return -1;
    if (strncmp(congestion, c->congestion, sizeof congestion) &&
        set(fd, IPPROTO_TCP, TCP_CONGESTION, c->congestion, (socklen_t)strnlen(c->congestion, sizeof c->congestion)) < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)&c->local, length) < 0 ||
        set_sequence(fd, TCP_RECV_QUEUE, c->receive_seq - c->receive_length) < 0 ||
        set_sequence(fd, TCP_SEND_QUEUE, c->send_seq - c->send_length) < 0 ||
        connect(fd, (struct sockaddr *)&c->peer, length) < 0 || agree(c) < 0 || write_settings(c) < 0)
        return -1;
    return write_queues(c);
}

static int restore(struct row *c)
{
    c->made = socket(c->family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (c->made < 0)
        return -1;
    if (build(c) < 0) {
        c->error = errno;
        close(c->made); /* in repair mode, so without a word */
        c->made = -1;
        return -1;
    }
    return 0;
}

static int thaw(struct row *c)
{
    int fd = c->made;
    if (set_number(fd, SOL_SOCKET, SO_DETACH_FILTER, 0) < 0 ||
        set_number(fd, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_OFF_NO_WP) < 0 ||
        set_number(fd, SOL_SOCKET, SO_REUSEADDR, 1) < 0)
        return -1;
    if (c->unsent && fill(fd, c->send_queue + c->send_length - c->unsent, c->unsent) < 0)
        return -1;
    if (1 << c->state & FIN_SENT && shutdown(fd, SHUT_WR) < 0)
        return -1;
    if (c->send_length + c->receive_length && size_buffers(fd, c->send_buffer, c->receive_buffer) < 0)
        return -1;
    return set_number(fd, SOL_SOCKET, SO_BUF_LOCK, c->fixed_buffers);
}

static int retire(struct row *c)
{
    struct sockaddr nowhere = {.sa_family = AF_UNSPEC};
    if (connect(c->old, &nowhere, sizeof nowhere) < 0)
        return -1;
    return set_number(c->old, IPPROTO_TCP, TCP_REPAIR, TCP_REPAIR_OFF_NO_WP);
}

/* ---- what native.py calls ---- */

int migrate_row_size(void) { return sizeof(struct row); }

void migrate_start(const struct settings *of4, const struct settings *of6)
{
    struct bpf_insn nothing[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
        {.code = BPF_JMP | BPF_EXIT},
    };
    union bpf_attr program;
    memset(&program, 0, sizeof program);
    program.prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
    program.insns = (uint64_t)(uintptr_t)nothing;
    program.insn_cnt = 2;
    program.license = (uint64_t)(uintptr_t) "GPL";
    plain4 = *of4;
    plain6 = *of6;
    if (drop_all < 0)
        drop_all = (int)syscall(SYS_bpf, BPF_PROG_LOAD, &program, sizeof program);
}

int migrate_check(struct row *rows, int count) { return each(rows, count, check); }
int migrate_dump(struct row *rows, int count) { return each_by_two(rows, count, freeze_and_dump); }
int migrate_refresh(struct row *rows, int count) { return each(rows, count, refresh); }
int migrate_restore(struct row *rows, int count) { return each_by_two(rows, count, restore); }
int migrate_thaw(struct row *rows, int count) { return each(rows, count, thaw); }
int migrate_retire(struct row *rows, int count) { return each(rows, count, retire); }

void migrate_release(struct row *rows, int count)
{
    for (struct row *c = rows; c < rows + count; c++)
        release(c);
}
