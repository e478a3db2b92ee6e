// Determines the devices that the compiled kernels of this program run on.
#pragma once

#include <string>
#include <string_view>

namespace base::cuda {

enum class Runs {
  kNo,
  kCompiled,   // as machine code
  kTranslated  // from PTX, by the driver, when a kernel is first used
};

// Determines if code for `architectures` runs on a device of this compute capability. The list is
// that of CMAKE_CUDA_ARCHITECTURES, with blanks or semicolons: "80-real" is machine code for 8.0 to
// 8.9, "90a-real" only for 9.0, "100f-real" for its family; "80-virtual" is PTX for 8.0 and
// everything newer, "90a-virtual" only for 9.0; "80" is both. A list with another word ("native")
// is unknown: kCompiled.
Runs runs_on(std::string_view architectures, int major, int minor);

// Returns the code that such a device runs: "sm_80" is machine code, "compute_80" PTX that the
// driver translates; "" for kNo, and for an unknown list.
std::string code_for(std::string_view architectures, int major, int minor);

// Formats the list for people: "sm_80, sm_90a, compute_80".
std::string architectures_text(std::string_view architectures);

// The architectures that this program was compiled for; "" in a build without CUDA.
std::string compiled_architectures();

// Describes the code that a device runs if it is not the device's own: "kernels for sm_80" on 8.9,
// "kernels from PTX for compute_80" on 10.0; "" for machine code of its own.
std::string code_text(std::string_view architectures, int major, int minor);

// Describes the cost of the first start on a device that runs translated code. `name` is as in
// UnusedDevice.
std::string translation_text(const std::string& name);

}  // namespace base::cuda
