// Expands SLURM's compressed lists of hosts: "n[01-03,7]-ib[0-1],alpha".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace backends {

// Returns the hosts of `list` in the order of `scontrol show hostnames`, with duplicates. Names are
// separated by commas or blanks. A group in brackets holds numbers and ranges; a range is padded
// with zeros to the width of its lower bound. A name may have several groups: the last one varies
// fastest, then the first, the second and so on. Beyond scontrol, text may follow the last group
// ("n[1-2].example.org"), and a name may begin with USER@. Input that scontrol accepts by guessing
// (no closing bracket, blanks in brackets, numbers out of range) is an error here. At most 65536
// hosts, names of at most 253 characters. Throws ConfigurationError with `what` (the variable or
// option), the position, from 1, and the text there.
std::vector<std::string> expand_hostlist(std::string_view list, std::string_view what);

}  // namespace backends
