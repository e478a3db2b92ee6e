// Which devices the compiled kernels of this program run on.
#pragma once

#include <string>
#include <string_view>

namespace base::cuda {

enum class Runs {
  kNo,
  kCompiled,   // as machine code
  kTranslated  // from PTX, by the driver, when a kernel is first used
};

// Whether code for `architectures` runs on a device of this compute capability. The list is that of
// CMAKE_CUDA_ARCHITECTURES, with blanks or semicolons: "80-real" is machine code for 8.0 to 8.9,
// "90a-real" for 9.0 alone, "100f-real" for its family; "80-virtual" is PTX for 8.0 and all that is
// newer, "90a-virtual" for 9.0 alone; "80" is both. A list with another word ("native") tells
// nothing: kCompiled.
Runs runs_on(std::string_view architectures, int major, int minor);

// The code that such a device runs: "sm_80" is machine code, "compute_80" PTX that the driver
// translates; "" for kNo, and for a list that tells nothing.
std::string code_for(std::string_view architectures, int major, int minor);

// For people: "sm_80, sm_90a, compute_80".
std::string architectures_text(std::string_view architectures);

// What this program was compiled for; "" in a build without CUDA.
std::string compiled_architectures();

// How the code that a device runs differs from its own: "kernels for sm_80" on 8.9, "kernels from
// PTX for compute_80" on 10.0; "" for machine code of its own.
std::string code_text(std::string_view architectures, int major, int minor);

// Of a device that runs translated code: what its first start takes. `name` as in UnusedDevice.
std::string translation_text(const std::string& name);

}  // namespace base::cuda
