"""Images, folders of images, and images made on the fly."""
