// Selects the folder of flight records if the user has not chosen one.
#pragma once

#include <string>

namespace tools {

// Makes the folder `job` below `base`, and `base` if it does not exist, for this user only. Returns
// its path. Others can write to the parent of `base`, so `base` must be a folder of this user that
// only this user can change, not a link; otherwise throws io::CannotCreateError that names what it
// is.
std::string own_flight_folder(const std::string& base, const std::string& job);

}  // namespace tools
