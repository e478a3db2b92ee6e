// Where flight records go that nobody has chosen a folder for.
#pragma once

#include <string>

namespace tools {

// Makes the folder `job` below `base`, and `base` if it is not there, for this user only. Returns
// its path. `base` lies where others can write, so it must be a folder of this user that nobody
// else can change, not a link: throws io::CannotCreateError that says what it is instead.
std::string own_flight_folder(const std::string& base, const std::string& job);

}  // namespace tools
