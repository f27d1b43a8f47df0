// The kernels by name, with the sizes of their arguments, to refuse launches with other arguments.
#pragma once
#include "emulator.h"

struct Entry {
    const char* name;
    void (*call)(void**);
    const size_t* sizes;
    size_t count;
};

template <auto F>
struct Call;
template <class... A, void (*F)(A...)>
struct Call<F> {
    static constexpr size_t sizes[sizeof...(A) + 1] = {sizeof(A)..., 0};
    template <size_t... I>
    static void spread(void** a, std::index_sequence<I...>) {
        F(*static_cast<A*>(a[I])...);
    }
    static void call(void** a) { spread(a, std::index_sequence_for<A...>{}); }
    static constexpr size_t count = sizeof...(A);
};
#define ENTRY(name) {#name, Call<name>::call, Call<name>::sizes, Call<name>::count}
