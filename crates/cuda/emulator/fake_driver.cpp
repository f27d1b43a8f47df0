// A libcuda.so.1 that runs the kernels on the CPU; fake_cublaslt.cpp is its cuBLASLt, so that all code above the driver runs without a GPU.
//
// It refuses what the driver's documentation forbids: calls without a current context, handles and addresses that don't exist or belong to another
// device, calls that a capture doesn't allow, shapes beyond the limits, PTX newer than the driver. Each refusal of a mistake is a
// complaint, of which a process has none. Tests plant errors in calls, as real machines return them.
//
// Work runs at once, in the order of submission: a missing wait doesn't show here but on the emulated driver. A kernel's failure shows in the calls
// that follow, and stays, as on a GPU. Kernels are compiled with fused multiplications and additions, as ptxas does.
#include "fake_driver.h"
#include "table.h"

#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include <unistd.h>

extern "C" const Entry fgrpo_emulator_kernels[];
extern "C" const char* fgrpo_emulator_launch(const char*, void (*)(void**), void**, const unsigned*, const unsigned*, size_t, unsigned);
extern "C" void* fgrpo_emulator_allocate(size_t);
extern "C" void fgrpo_emulator_free(void*, size_t);

using namespace fake;
enum { SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, INVALID_PTX = 218, UNSUPPORTED_PTX = 222, INVALID_HANDLE = 400,
       NOT_FOUND = 500, ILLEGAL_ADDRESS = 700, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901, CAPTURE_WRONG_THREAD = 908 };
const int DEVICES = 2, SHARED_MEMORY = 227 << 10, DRIVER = 12000;
const double PTX = 8.0;

struct Context {
    int references = 0;
    std::atomic<int> broken{SUCCESS};
    size_t used = 0;
};
struct fake::Stream {
    Context* context;
    bool capturing = false, invalid = false;
    pid_t owner = 0;
    std::vector<Node> nodes;
};
struct Event {
    Context* context;
};
struct Graph {
    Context* context;
    std::vector<Node> nodes;
};
struct Function {
    const Entry* entry;
    int dynamic = 48 << 10;
};
struct Module {
    Context* context;
    std::string text;
    std::map<std::string, Function> functions;
};
struct Allocation {
    size_t bytes;
    Context* context;
};
/// A planted error: of the call with this name, the one with this number.
struct Fault {
    std::string call;
    long number;
    int code;
};

static std::recursive_mutex mutex;
typedef std::lock_guard<std::recursive_mutex> Lock;
static Context contexts[DEVICES];
static thread_local Context* current;
static thread_local Stream* captures_here;
static std::map<Pointer, Allocation> memory, pinned;
/// Everything that has to be destroyed, and what it is.
static std::map<const void*, const char*> alive;
static std::map<std::string, long> calls, complaints;
static Fault fault;
static bool planted;

static size_t total_memory() {
    const char* set = getenv("FGRPO_FAKE_MEMORY");
    return set ? strtoull(set, nullptr, 10) : size_t(4) << 30;
}

int fake::refuse(int code, const char* call, const std::string& why) {
    Lock lock(mutex);
    if (complaints[std::string(call) + ": " + why]++ < 3) fprintf(stderr, "fake driver: %s: %s\n", call, why.c_str());
    return code;
}

int fake::enter(const char* call) {
    Lock lock(mutex);
    static bool asked = [] {
        // CALL:NUMBER:CODE
        if (const char* set = getenv("FGRPO_FAKE_FAULT")) {
            char name[64];
            planted = sscanf(set, "%63[^:]:%ld:%d", name, &fault.number, &fault.code) == 3;
            fault.call = name;
        }
        return true;
    }();
    (void)asked;
    calls[call]++;
    if (!planted || fault.call != call || fault.number-- != 0) return SUCCESS;
    planted = false;
    return fault.code;
}
#define IN_CONTEXT()                                                                             \
    ENTER();                                                                                     \
    if (!in_context()) return refuse(INVALID_CONTEXT, __func__, "no current context"); \
    if (int broken = current->broken) return broken
/// Calls that a thread can't make while it captures.
#define NOT_IN_A_CAPTURE()                                                      \
    if (captures_here) {                                                        \
        captures_here->invalid = true;                                          \
        return refuse(CAPTURE_UNSUPPORTED, __func__, "while this thread captures"); \
    }

void fake::remember(const void* handle, const char* what) {
    Lock lock(mutex);
    alive[handle] = what;
}
bool fake::lives(const void* handle, const char* what) {
    Lock lock(mutex);
    auto found = alive.find(handle);
    return found != alive.end() && !strcmp(found->second, what);
}
void fake::forget(const void* handle) {
    Lock lock(mutex);
    alive.erase(handle);
}
bool fake::in_context() { return current && current->references > 0; }
bool fake::is_broken() { return current->broken; }
bool fake::captures() { return captures_here; }

static const Allocation* within(std::map<Pointer, Allocation>& map, Pointer at, size_t bytes) {
    Lock lock(mutex);
    auto next = map.upper_bound(at);
    if (next == map.begin()) return nullptr;
    --next;
    return at + bytes <= next->first + next->second.bytes ? &next->second : nullptr;
}
static bool on(const Context* context, Pointer at, size_t bytes) {
    auto found = within(memory, at, bytes);
    return found && found->context == context;
}

bool fake::on_device(Pointer at, size_t bytes) { return on(current, at, bytes); }

int fake::submit(const char* call, Stream* stream, Node node) {
    if (!lives(stream, "stream")) return refuse(INVALID_HANDLE, call, "no such stream");
    if (stream->context != current) return refuse(INVALID_HANDLE, call, "a stream of another context");
    if (!stream->capturing) return node.run();
    if (stream->owner != gettid()) return refuse(CAPTURE_WRONG_THREAD, call, "the stream captures on another thread");
    stream->nodes.push_back(std::move(node));
    return SUCCESS;
}
static int submit_copy(const char* call, Stream* stream, Pointer to, Pointer from, size_t bytes) {
    auto copy = [=] {
        memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
        return 0;
    };
    return submit(call, stream, {copy, {to, from}});
}

// For tests: plants an error in the call of this name that comes after so many others of it (a kernel's own failure is of the call "kernel"); an
// empty name takes it away. Then a list of what lives, what was called, and the complaints.
API void fgrpo_fake_plant(const char* call, long number, int code) {
    Lock lock(mutex);
    enter("fgrpo_fake_plant");
    fault = {call, number, code};
    planted = *call;
    for (auto& context : contexts) context.broken = SUCCESS;
}
API const char* fgrpo_fake_report() {
    Lock lock(mutex);
    static std::string text;
    std::map<std::string, size_t> live;
    for (auto& one : alive) live[one.second]++;
    live["device memory"] = memory.size(), live["host memory"] = pinned.size();
    live["context"] = contexts[0].references + contexts[1].references;
    text.clear();
    for (auto& [what, count] : live)
        if (count) text += "live\t" + std::to_string(count) + "\t" + what + "\n";
    for (auto& [call, count] : calls) text += "call\t" + std::to_string(count) + "\t" + call + "\n";
    for (auto& [why, count] : complaints) text += "complaint\t" + std::to_string(count) + "\t" + why + "\n";
    return text.c_str();
}
/// A process that has made a mistake doesn't end well.
static struct AtExit {
    ~AtExit() {
        if (getenv("FGRPO_FAKE_REPORT")) fputs(fgrpo_fake_report(), stderr);
        if (!complaints.empty()) _exit(9);
    }
} at_exit;

// The driver.

API int cuInit(unsigned) {
    ENTER();
    return SUCCESS;
}
API int cuDriverGetVersion(int* version) {
    const char* set = getenv("FGRPO_FAKE_VERSION");
    *version = set ? atoi(set) : DRIVER;
    return SUCCESS;
}
API int cuGetErrorString(int code, const char** text) {
    static thread_local char name[40];
    snprintf(name, sizeof name, "error %d of the fake driver", code);
    *text = name;
    return SUCCESS;
}
API int cuGetErrorName(int code, const char** text) { return cuGetErrorString(code, text); }
API int cuDeviceGetCount(int* count) {
    ENTER();
    *count = DEVICES;
    return SUCCESS;
}
API int cuDeviceGet(int* device, int ordinal) {
    ENTER();
    WANT(ordinal < DEVICES, INVALID_DEVICE, "no such device");
    *device = ordinal;
    return SUCCESS;
}
API int cuDeviceGetName(char* name, int room, int device) {
    ENTER();
    snprintf(name, room, "fake GPU %d", device);
    return SUCCESS;
}
API int cuDeviceTotalMem_v2(size_t* bytes, int) {
    ENTER();
    *bytes = total_memory();
    return SUCCESS;
}
API int cuDeviceGetAttribute(int* value, int attribute, int) {
    ENTER();
    static const std::map<int, int> known = {{75, 9}, {76, 0}, {97, SHARED_MEMORY}};
    WANT(known.count(attribute), INVALID_VALUE, "attribute " + std::to_string(attribute));
    *value = known.at(attribute);
    return SUCCESS;
}
API int cuDevicePrimaryCtxRetain(Context** context, int device) {
    ENTER();
    Lock lock(mutex);
    contexts[device].references++;
    *context = &contexts[device];
    return SUCCESS;
}
API int cuDevicePrimaryCtxRelease_v2(int device) {
    ENTER();
    Lock lock(mutex);
    WANT(contexts[device].references > 0, INVALID_CONTEXT, "released too often");
    contexts[device].references--;
    return SUCCESS;
}
API int cuCtxSetCurrent(Context* context) {
    ENTER();
    current = context;
    return SUCCESS;
}
API int cuCtxGetCurrent(Context** context) {
    *context = current;
    return SUCCESS;
}
API int cuStreamCreate(Stream** stream, unsigned flags) {
    IN_CONTEXT();
    WANT(flags == 1, INVALID_VALUE, "a stream that waits for the default one");
    *stream = born(new Stream{current}, "stream");
    return SUCCESS;
}
API int cuStreamDestroy_v2(Stream* stream) {
    ENTER();
    return destroy(stream, "stream", __func__, INVALID_HANDLE);
}
API int cuStreamSynchronize(Stream* stream) {
    IN_CONTEXT();
    WANT(lives(stream, "stream"), INVALID_HANDLE, "no such stream");
    if (!stream->capturing) return SUCCESS;
    stream->invalid = true;
    return refuse(CAPTURE_UNSUPPORTED, __func__, "the stream captures");
}

API int cuModuleLoadDataEx(Module** module, const char* text, unsigned count, const int* options, void** values) {
    enum { WALL_TIME = 2, ERROR_LOG = 5, ERROR_LOG_BYTES = 6 };
    char* log = nullptr;
    size_t room = 0;
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == WALL_TIME) *reinterpret_cast<float*>(&values[i]) = 1.5f;
        if (options[i] == ERROR_LOG) log = static_cast<char*>(values[i]);
        if (options[i] == ERROR_LOG_BYTES) room = reinterpret_cast<size_t>(values[i]);
    }
    auto failed = [&](int code, const std::string& why) {
        if (log) snprintf(log, room, "ptxas application ptx input: %s", why.c_str());
        return code;
    };
    if (int code = enter(__func__)) return failed(code, "planted");
    WANT(in_context(), INVALID_CONTEXT, "no current context");
    NOT_IN_A_CAPTURE();
    const char* version = strstr(text, "\n.version ");
    if (!version) return failed(INVALID_PTX, "no version");
    if (atof(version + 10) > PTX) return failed(UNSUPPORTED_PTX, "Unsupported .version; current version is '8.0'");
    *module = born(new Module{current, text, {}}, "module");
    return SUCCESS;
}
API int cuModuleUnload(Module* module) {
    ENTER();
    NOT_IN_A_CAPTURE();
    return destroy(module, "module", __func__, INVALID_HANDLE);
}
API int cuModuleGetFunction(Function** function, Module* module, const char* name) {
    IN_CONTEXT();
    WANT(lives(module, "module"), INVALID_HANDLE, "no such module");
    const Entry* entry = fgrpo_emulator_kernels;
    while (entry->name && strcmp(entry->name, name)) entry++;
    if (!entry->name || module->text.find(std::string(".entry ") + name + "(") == std::string::npos) return NOT_FOUND;
    Lock lock(mutex);
    *function = &module->functions.try_emplace(name, Function{entry}).first->second;
    return SUCCESS;
}
API int cuFuncSetAttribute(Function* function, int attribute, int value) {
    IN_CONTEXT();
    WANT(attribute == 8 && value <= SHARED_MEMORY, INVALID_VALUE, "attribute " + std::to_string(attribute));
    function->dynamic = value;
    return SUCCESS;
}
API int cuLaunchKernel(Function* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                       Stream* stream, void** parameters, void** extra) {
    IN_CONTEXT();
    const Entry* entry = function->entry;
    std::string name = entry->name;
    WANT(!extra && gx && gy && gz && gx <= 0x7fffffff && gy <= 65535 && gz <= 65535 && bx && by && bz && bx * by * bz <= 1024, INVALID_VALUE, name + ": shape");
    WANT(int(shared) <= function->dynamic, INVALID_VALUE, name + ": more shared memory than its attribute");
    // The driver copies the arguments during the call.
    std::vector<std::array<char, 8>> values(entry->count);
    for (size_t i = 0; i < entry->count; i++) memcpy(values[i].data(), parameters[i], entry->sizes[i]);
    Context* context = current;
    auto run = [=]() mutable {
        if (int code = enter("kernel")) return context->broken = code, SUCCESS;
        std::vector<void*> pointers;
        for (auto& value : values) pointers.push_back(value.data());
        unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
        const char* why = fgrpo_emulator_launch(entry->name, entry->call, pointers.data(), grid, block, shared, 0);
        if (why) context->broken = refuse(ILLEGAL_ADDRESS, "kernel", why);
        return SUCCESS;
    };
    return submit(__func__, stream, {run, {}});
}

API int cuMemGetInfo_v2(size_t* free, size_t* total) {
    IN_CONTEXT();
    *total = total_memory();
    *free = *total - current->used;
    return SUCCESS;
}
API int cuMemAlloc_v2(Pointer* at, size_t bytes) {
    IN_CONTEXT();
    NOT_IN_A_CAPTURE();
    WANT(bytes, INVALID_VALUE, "0 bytes");
    Lock lock(mutex);
    if (current->used + bytes > total_memory()) return OUT_OF_MEMORY;
    // It begins at a multiple of 256 bytes, and a fence follows the 256 of its end.
    *at = reinterpret_cast<Pointer>(fgrpo_emulator_allocate((bytes + 255) / 256 * 256));
    memory[*at] = {bytes, current};
    current->used += bytes;
    return SUCCESS;
}
API int cuMemFree_v2(Pointer at) {
    ENTER();
    WANT(current, INVALID_CONTEXT, "no current context");
    NOT_IN_A_CAPTURE();
    Lock lock(mutex);
    auto found = memory.find(at);
    WANT(found != memory.end(), INVALID_VALUE, "no such memory");
    found->second.context->used -= found->second.bytes;
    fgrpo_emulator_free(reinterpret_cast<void*>(at), (found->second.bytes + 255) / 256 * 256);
    memory.erase(found);
    return current->broken;
}
API int cuMemHostAlloc(void** at, size_t bytes, unsigned) {
    IN_CONTEXT();
    NOT_IN_A_CAPTURE();
    Lock lock(mutex);
    *at = fgrpo_emulator_allocate(bytes);
    pinned[reinterpret_cast<Pointer>(*at)] = {bytes, current};
    return SUCCESS;
}
API int cuMemFreeHost(void* at) {
    ENTER();
    WANT(current, INVALID_CONTEXT, "no current context");
    NOT_IN_A_CAPTURE();
    Lock lock(mutex);
    auto found = pinned.find(reinterpret_cast<Pointer>(at));
    WANT(found != pinned.end(), INVALID_VALUE, "no such memory");
    fgrpo_emulator_free(at, found->second.bytes);
    pinned.erase(found);
    return current->broken;
}
static int pageable(const char* call, Stream* stream) {
    if (!stream->capturing) return SUCCESS;
    stream->invalid = true;
    return refuse(CAPTURE_UNSUPPORTED, call, "a copy of pageable memory in a capture");
}
API int cuMemcpyHtoDAsync_v2(Pointer to, const void* from, size_t bytes, Stream* stream) {
    IN_CONTEXT();
    WANT(on(current, to, bytes), INVALID_VALUE, "not in this device's memory");
    if (int code = pageable(__func__, stream)) return code;
    return submit_copy(__func__, stream, to, reinterpret_cast<Pointer>(from), bytes);
}
API int cuMemcpyDtoHAsync_v2(void* to, Pointer from, size_t bytes, Stream* stream) {
    IN_CONTEXT();
    WANT(on(current, from, bytes), INVALID_VALUE, "not in this device's memory");
    if (int code = pageable(__func__, stream)) return code;
    return submit_copy(__func__, stream, reinterpret_cast<Pointer>(to), from, bytes);
}
API int cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t bytes, Stream* stream) {
    IN_CONTEXT();
    WANT(on(current, to, bytes) && on(current, from, bytes), INVALID_VALUE, "not in this device's memory");
    return submit_copy(__func__, stream, to, from, bytes);
}
API int cuMemcpyAsync(Pointer to, Pointer from, size_t bytes, Stream* stream) {
    IN_CONTEXT();
    auto known = [&](Pointer at) { return on(current, at, bytes) || within(pinned, at, bytes); };
    WANT(known(to) && known(from), INVALID_VALUE, "neither this device's memory nor page-locked");
    return submit_copy(__func__, stream, to, from, bytes);
}
API int cuMemsetD8Async(Pointer at, unsigned char value, size_t bytes, Stream* stream) {
    IN_CONTEXT();
    WANT(on(current, at, bytes), INVALID_VALUE, "not in this device's memory");
    auto set = [=] {
        memset(reinterpret_cast<void*>(at), value, bytes);
        return 0;
    };
    return submit(__func__, stream, {set, {at}});
}

API int cuEventCreate(Event** event, unsigned) {
    IN_CONTEXT();
    *event = born(new Event{current}, "event");
    return SUCCESS;
}
API int cuEventDestroy_v2(Event* event) {
    ENTER();
    return destroy(event, "event", __func__, INVALID_HANDLE);
}
API int cuEventRecord(Event* event, Stream* stream) {
    IN_CONTEXT();
    WANT(lives(event, "event") && lives(stream, "stream") && event->context == stream->context, INVALID_HANDLE, "event and stream");
    WANT(!stream->capturing, CAPTURE_UNSUPPORTED, "the stream captures");
    return SUCCESS;
}
API int cuEventSynchronize(Event* event) {
    IN_CONTEXT();
    NOT_IN_A_CAPTURE();
    WANT(lives(event, "event"), INVALID_HANDLE, "no such event");
    return event->context->broken;
}
API int cuStreamWaitEvent(Stream* stream, Event* event, unsigned) {
    IN_CONTEXT();
    WANT(lives(event, "event") && lives(stream, "stream"), INVALID_HANDLE, "event and stream");
    return SUCCESS;
}

API int cuStreamBeginCapture_v2(Stream* stream, int mode) {
    IN_CONTEXT();
    WANT(mode == 1 && !stream->capturing, CAPTURE_INVALIDATED, "a mode other than the thread's, or twice");
    stream->capturing = true;
    stream->invalid = false;
    stream->owner = gettid();
    stream->nodes.clear();
    captures_here = stream;
    return SUCCESS;
}
API int cuStreamEndCapture(Stream* stream, Graph** graph) {
    stream->capturing = false;
    captures_here = nullptr;
    *graph = nullptr;
    IN_CONTEXT();
    if (stream->invalid) return CAPTURE_INVALIDATED;
    *graph = born(new Graph{current, stream->nodes}, "graph");
    return SUCCESS;
}
API int cuGraphInstantiateWithFlags(Graph** made, Graph* graph, unsigned long long) {
    IN_CONTEXT();
    WANT(lives(graph, "graph"), INVALID_HANDLE, "no such graph");
    *made = born(new Graph(*graph), "instantiated graph");
    return SUCCESS;
}
API int cuGraphDestroy(Graph* graph) {
    ENTER();
    return destroy(graph, "graph", __func__, INVALID_HANDLE);
}
API int cuGraphExecDestroy(Graph* graph) {
    ENTER();
    return destroy(graph, "instantiated graph", __func__, INVALID_HANDLE);
}
API int cuGraphLaunch(Graph* graph, Stream* stream) {
    IN_CONTEXT();
    WANT(lives(graph, "instantiated graph"), INVALID_HANDLE, "no such graph");
    WANT(!stream->capturing && stream->context == graph->context, INVALID_HANDLE, "a stream that captures, or of another context");
    for (auto& node : graph->nodes) {
        for (Pointer at : node.addresses) WANT(within(memory, at, 1), ILLEGAL_ADDRESS, "the memory of a node was freed");
        if (int code = node.run()) return code;
    }
    return SUCCESS;
}
