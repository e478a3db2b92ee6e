// For two ranks that wait for each other on one core: schedulers tend to keep them there, because
// each wakes the other and only one runs at a time. These functions move one of them away.
#pragma once

namespace backends {

// The core that the calling thread runs on; -1 if unknown. Takes some nanoseconds.
int current_core() noexcept;

// Moves the calling thread from `core` to another core that it may use, without pinning it there.
// It costs about 10 us, so at most once in 10 ms per thread; returns false if it did nothing or the
// thread may use no other core, as where `--bind core` has given it one.
bool leave_core(int core) noexcept;

}  // namespace backends
