// Whether this process may use AMX's tiles.
#pragma once

namespace engine::ops {

// Whether the CPU multiplies tiles of bf16, the system saves them, and has granted them to this
// process and its threads, which the first call asks for: Linux lets nobody use them before
// (Documentation/arch/x86/xstate.rst).
bool amx_granted();

}  // namespace engine::ops
