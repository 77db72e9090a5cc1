"""Use in other people's programs: each module needs the library that it is named after."""
