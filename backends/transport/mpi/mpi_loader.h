// Loads the system's MPI library at run time, and hides which ABI it has.
//
// ENGINE_MPI_LIBRARY names the library; else the usual names are tried in the system's search path,
// first those of the MPI whose launcher started this process. Handles, constants and their types
// differ between MPI libraries, so the ABI is identified before the first call that needs them.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/transport/mpi/mpi_library.h"

namespace backends {

// The value of an environment variable; "": not set.
using MpiVariables = std::function<std::string(const char* name)>;

// Returns the names that are tried without ENGINE_MPI_LIBRARY, in this order.
std::vector<std::string> mpi_library_names(const MpiVariables& variables);
// Returns true if variables of mpirun or srun are set that a rank of MPI needs.
bool has_mpi_launcher(const MpiVariables& variables);

// Loads ENGINE_MPI_LIBRARY, else the first of `names` that exists, and never unloads it; does not
// initialize MPI. Throws ConfigurationError, one line: no library, not loadable, too old, or an
// unknown ABI.
std::unique_ptr<MpiLibrary> load_mpi_library(const MpiVariables& variables,
                                             const std::vector<std::string>& names);

// Returns this process's library, loaded on first use. Throws as above.
MpiLibrary& mpi_library();

}  // namespace backends
