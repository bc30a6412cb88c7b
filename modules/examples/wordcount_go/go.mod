module wordcount_go

go 1.27
