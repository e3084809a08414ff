# Install and export: filled by the install rules of the rooms.
