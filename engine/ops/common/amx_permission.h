// Determines if this process may use AMX tiles.
#pragma once

namespace engine::ops {

// Returns true if the CPU multiplies bf16 tiles, and the operating system saves them and has
// granted them to this process and its threads. The first call requests the permission: Linux does
// not allow their use before that (Documentation/arch/x86/xstate.rst).
bool amx_granted();

}  // namespace engine::ops
