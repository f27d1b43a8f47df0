// Shared by the two libraries of the fake driver: planted errors, refusals, handles, and stream work.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

#pragma GCC visibility push(default)
namespace fake {

typedef uint64_t Pointer;
struct Stream;
struct Node {
    std::function<int()> run;
    std::vector<Pointer> addresses;
};

/// Returns the planted error of a call when it is due, otherwise 0.
int enter(const char* call);
/// Reports incorrect use by the caller and returns the error code.
int refuse(int code, const char* call, const std::string& why);
/// Whether a context is current.
bool in_context();
bool on_device(Pointer at, size_t bytes);
bool is_broken();
bool captures();
/// Runs work, or records it if the stream is capturing.
int submit(const char* call, Stream* stream, Node node);

void remember(const void* handle, const char* what);
bool lives(const void* handle, const char* what);
void forget(const void* handle);

template <class T>
T* born(T* made, const char* what) {
    remember(made, what);
    return made;
}
template <class T>
int destroy(T* handle, const char* what, const char* call, int code) {
    if (!lives(handle, what)) return refuse(code, call, std::string("no such ") + what);
    forget(handle);
    delete handle;
    return 0;
}

}  // namespace fake
#pragma GCC visibility pop

#define ENTER() \
    if (int planted_code = enter(__func__)) return planted_code
#define WANT(condition, code, why) \
    if (!(condition)) return refuse(code, __func__, why)
