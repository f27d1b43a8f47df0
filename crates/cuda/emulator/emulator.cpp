// The emulator's scheduler, and the C functions that the emulated driver calls.
#include "emulator.h"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <random>
#include <string>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

namespace emulator {

thread_local Fiber* now;
thread_local uint3 block, block_dim, grid_dim;
thread_local char* shared;
thread_local size_t shared_bytes;

static thread_local std::vector<Fiber> fibers;
static thread_local const char* kernel = "";
static thread_local std::string failure;

#if defined(__x86_64__)
// Saves the registers that a call must preserve, and continues on another stack.
extern "C" void fgrpo_emulator_switch(void** from, void* to);
__asm__(
    ".text\n.globl fgrpo_emulator_switch\n"
    "fgrpo_emulator_switch:\n"
    " push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15\n"
    " mov %rsp,(%rdi)\n mov %rsi,%rsp\n"
    " pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp\n ret\n");
static thread_local void* scheduler;
static void resume(Fiber& fiber) { fgrpo_emulator_switch(&scheduler, fiber.stack_pointer); }
void yield() { fgrpo_emulator_switch(&now->stack_pointer, scheduler); }
static void prepare(Fiber& fiber, char* stack, size_t bytes, void (*start)()) {
    void** top = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(stack + bytes) & ~uintptr_t(15));
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(start);
    for (int i = 0; i < 6; i++) *--top = nullptr;
    fiber.stack_pointer = top;
}
#else
static thread_local ucontext_t scheduler;
static thread_local std::vector<ucontext_t> contexts;
static void resume(Fiber& fiber) { swapcontext(&scheduler, static_cast<ucontext_t*>(fiber.stack_pointer)); }
void yield() { swapcontext(static_cast<ucontext_t*>(now->stack_pointer), &scheduler); }
static void prepare(Fiber& fiber, char* stack, size_t bytes, void (*start)()) {
    if (contexts.size() < 1024) contexts.resize(1024);
    ucontext_t& context = contexts[&fiber - fibers.data()];
    getcontext(&context);
    context.uc_stack.ss_sp = stack;
    context.uc_stack.ss_size = bytes;
    context.uc_link = nullptr;
    makecontext(&context, start, 0);
    fiber.stack_pointer = &context;
}
#endif

static thread_local bool failed;

void fail(const char* what, int line) {
    char text[512];
    snprintf(text, sizeof text, "%s: %s (line %d, block %u %u %u, thread %u %u %u)", kernel, what, line, block.x, block.y, block.z,
             now ? now->thread.x : 0, now ? now->thread.y : 0, now ? now->thread.z : 0);
    failure = text;
    failed = true;
    // Back to the scheduler, which gives the launch up.
    yield();
    abort();
}

void check_shared(const void* p, size_t bytes, const char* what, int line) {
    auto at = static_cast<const char*>(p);
    if (at < shared || at + bytes > shared + shared_bytes) {
        char text[96];
        snprintf(text, sizeof text, "%s outside of shared memory", what);
        fail(text, line);
    }
}

/// By warp: lanes that have not left, and how many of them wait for an operation.
static thread_local std::vector<unsigned> live_lanes, waiting_lanes;

void collective(int operation, WarpOperation f, int argument, int line) {
    size_t warp = size_t(now - fibers.data()) / 32;
    Fiber* lanes = &fibers[32 * warp];
    now->request.operation = operation;
    now->request.argument = argument;
    now->line = line;
    now->state = IN_WARP;
    unsigned live = live_lanes[warp];
    if (++waiting_lanes[warp] != unsigned(__builtin_popcount(live))) {
        yield();
        return;
    }
    waiting_lanes[warp] = 0;
    for (int i = 0; i < 32; i++) {
        if (!(live >> i & 1)) continue;
        auto& r = lanes[i].request;
        if (r.operation != operation || lanes[i].line != line || r.argument != argument)
            fail("lanes of a warp ask for different operations", line);
    }
    f(lanes, live, argument);
    for (int i = 0; i < 32; i++)
        if (live >> i & 1) lanes[i].state = READY;
}

static thread_local void (*entry)(void**);
static thread_local void** arguments;

static void start() {
    entry(arguments);
    if (!now->copies.empty()) fail("a thread ends with asynchronous copies that it never waited for", 0);
    now->state = DONE;
    size_t lane = size_t(now - fibers.data());
    live_lanes[lane / 32] &= ~(1u << lane % 32);
    yield();
}

/// Memory with an inaccessible page behind it, so that the first byte beyond `bytes` (rounded up to 16) can't be touched.
struct Fenced {
    char* base = nullptr;
    size_t mapped = 0;
    char* data(size_t bytes) {
        size_t page = 4096, need = (bytes + page - 1) / page * page + page;
        if (mapped != need) {
            if (base) munmap(base, mapped);
            base = static_cast<char*>(mmap(nullptr, need, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
            mprotect(base + need - page, page, PROT_NONE);
            mapped = need;
        }
        return base + (need - page - (bytes + 15) / 16 * 16);
    }
    ~Fenced() {
        if (base) munmap(base, mapped);
    }
};

static void segv(int, siginfo_t* info, void*) {
    char text[256];
    int n = snprintf(text, sizeof text, "emulator: %s: address %p is outside of every allocation (block %u %u %u, thread %u)\n", kernel,
                     info->si_addr, block.x, block.y, block.z, now ? now->thread.x : 0);
    (void)!write(2, text, size_t(n));
    _exit(3);
}

const size_t STACK = 64 << 10;

/// The stacks of a block's threads. Pages that no fiber touches cost nothing.
struct Stacks {
    static const size_t BYTES = 1024 * STACK;
    char* base = static_cast<char*>(mmap(nullptr, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    ~Stacks() { munmap(base, BYTES); }
};

}  // namespace emulator

using namespace emulator;

/// Runs a kernel. Order 0 runs warps ascending and blocks descending, 1 the reverse, each warp as far as it can without the others; others shuffle all
/// threads, and blocks. Returns null, or what went wrong.
extern "C" const char* fgrpo_emulator_launch(const char* name, void (*f)(void**), void** args, const unsigned* grid, const unsigned* dim,
                                             size_t bytes, unsigned order) {
    static bool listening = [] {
        static char alternative[1 << 16];
        stack_t stack = {};
        stack.ss_sp = alternative;
        stack.ss_size = sizeof alternative;
        sigaltstack(&stack, nullptr);
        struct sigaction action = {};
        action.sa_sigaction = segv;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigaction(SIGSEGV, &action, nullptr);
        return true;
    }();
    (void)listening;
    static thread_local Stacks stacks;
    static thread_local Fenced fenced;
    unsigned n = dim[0] * dim[1] * dim[2], together = order > 1 ? n : 32;
    kernel = name;
    failed = false;
    shared = fenced.data(bytes);
    shared_bytes = bytes;
    block_dim = {dim[0], dim[1], dim[2]};
    grid_dim = {grid[0], grid[1], grid[2]};
    entry = f;
    arguments = args;
    std::mt19937 random(order);
    std::vector<unsigned> ids(n);
    std::vector<unsigned> blocks(grid[0]);
    for (unsigned i = 0; i < grid[0]; i++) blocks[i] = order == 0 ? grid[0] - 1 - i : i;
    if (order > 1) std::shuffle(blocks.begin(), blocks.end(), random);
    for (unsigned bz = 0; bz < grid[2]; bz++)
        for (unsigned by = 0; by < grid[1]; by++)
            for (unsigned bx : blocks) {
                block = {bx, by, bz};
                memset(shared, 0xff, bytes);
                fibers.assign(n, {});
                live_lanes.assign((n + 31) / 32, ~0u);
                waiting_lanes.assign((n + 31) / 32, 0);
                if (n % 32) live_lanes.back() = (1u << n % 32) - 1;
                for (unsigned i = 0; i < n; i++) {
                    fibers[i].thread = {i % dim[0], i / dim[0] % dim[1], i / (dim[0] * dim[1])};
                    prepare(fibers[i], stacks.base + i * STACK, STACK, start);
                    ids[i] = order == 1 ? n - 1 - i : i;
                }
                unsigned done = 0;
                while (done < n) {
                    bool moved = false;
                    for (unsigned from = 0; from < n; from += together)
                        for (bool again = true; again;) {
                            again = false;
                            if (order > 1) std::shuffle(ids.begin(), ids.end(), random);
                            for (unsigned i = from; i < std::min(from + together, n); i++) {
                                Fiber& fiber = fibers[ids[i]];
                                if (fiber.state != READY) continue;
                                again = moved = true;
                                now = &fiber;
                                resume(fiber);
                                if (failed) return failure.c_str();
                                if (fiber.state == DONE) done++;
                            }
                        }
                    if (moved) continue;
                    unsigned waiting = 0;
                    int line = 0;
                    for (auto& fiber : fibers)
                        if (fiber.state == AT_BARRIER) waiting++, line = fiber.line;
                    if (waiting == n) {
                        for (auto& fiber : fibers) {
                            if (fiber.line != line) {
                                now = &fiber;
                                failure = std::string(kernel) + ": threads wait at different barriers, lines " + std::to_string(line) +
                                          " and " + std::to_string(fiber.line);
                                return failure.c_str();
                            }
                            fiber.state = READY;
                        }
                    } else {
                        failure = std::string(kernel) + (waiting + done == n ? ": a thread left before the barrier of line "
                                                                            : ": some wait at a barrier, some in a warp, line ") +
                                  std::to_string(line);
                        return failure.c_str();
                    }
                }
            }
    now = nullptr;
    return nullptr;
}

/// Memory of exactly `bytes`, poisoned, with inaccessible pages before and behind. Free it with the same size.
extern "C" void* fgrpo_emulator_allocate(size_t bytes) {
    size_t page = 4096, inner = (bytes + 15) / 16 * 16, body = (inner + page - 1) / page * page;
    char* base = static_cast<char*>(mmap(nullptr, body + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base == MAP_FAILED) return nullptr;
    mprotect(base, page, PROT_NONE);
    mprotect(base + page + body, page, PROT_NONE);
    memset(base + page, 0xff, body);
    return base + page + body - inner;
}

extern "C" void fgrpo_emulator_free(void* p, size_t bytes) {
    size_t page = 4096, inner = (bytes + 15) / 16 * 16, body = (inner + page - 1) / page * page;
    munmap(static_cast<char*>(p) + inner - body - page, body + 2 * page);
}
