// Two ranks that wait for each other on one core: schedulers tend to keep them there, because each
// wakes the other and only one of them ever runs. These let one of the two go elsewhere.
#pragma once

namespace backends {

// The core that the calling thread runs on; -1 where that cannot be told. Some nanoseconds.
int current_core() noexcept;

// Moves the calling thread from `core` to another of the cores that it may use, and leaves it free
// to run anywhere again. At most once in 10 ms for a thread, since it costs some 10 us; false when
// it was not tried, or the thread may use no other core.
bool leave_core(int core) noexcept;

}  // namespace backends
